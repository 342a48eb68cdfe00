#pragma once
// What a file of torch.export.save holds, that it runs, and whether it computes as Python.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/exported.h"

namespace lockstep::model_check {

struct ModelCheck {
  std::string path, eval_path;  // the model, and as it was exported for evaluation; empty = the same
  std::string sample;           // what Python computed with it; empty = nothing to compare
  bool json = false;
};

/// Prints what it finds at once, or with `json` at the end, as one object. Returns the exit status:
/// kFailed where Python computed something else.
int check_model(const ModelCheck& asked);

// A forward and a backward of an exported model, on inputs made up for it.

/// The dtype that an input's kind names; nothing where it is no tensor.
std::optional<at::ScalarType> dtype_of(const ExportedValue& value);

/// Inputs as the file describes them, a leaf each: random where numbers are real, else 0; a size that may
/// change is 2, or its least.
std::vector<c10::IValue> made_up_inputs(const ExportedFacts& facts);

/// Forward, and backward of the sum of the outputs' mean squares, from the random numbers of seed 0 and
/// without gradients before it. Returns the outputs.
std::vector<c10::IValue> try_model(ExportedNet& net, std::vector<c10::IValue> inputs);

/// Of the last backward: the parameters that are trained, and the names of those that it did not reach.
struct Reached {
  int64_t trained = 0;
  std::vector<std::string> without_gradient = {};
};
Reached reached(const ExportedNet& net);

// What Python computed with an exported model, and whether it is computed here.

/// What the script of `lockstep model template --sample` leaves.
struct ModelSample {
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  std::vector<c10::IValue> inputs = {};  // a leaf each
  Named outputs = {}, gradients = {};    // "output.0", "grad.fc.weight"
};

/// InputError where the file lacks an input, or speaks of a parameter or an output that the model has not.
ModelSample read_model_sample(const std::string& path, const ExportedNet& net);

/// A tensor here beside Python's.
struct Compared {
  std::string name;
  std::string words = {};  // "the same bits", or how they differ
  bool same_bits = false, agrees = false;
  bool is_lost = false;                // a gradient that Python has, and that is none or 0 here
  double difference = 0, largest = 0;  // the largest of each: |here - Python's|, |Python's|
};

struct Comparison {
  std::vector<Compared> outputs, gradients;

  bool agrees() const;
  /// Python's backward is another one than this.
  bool lost_backward() const;
};

/// After a forward and a backward from the sample's inputs.
Comparison compare_with_python(const ModelSample& sample, const ExportedNet& net,
                               const std::vector<c10::IValue>& outputs);

/// To what two numbers agree.
inline constexpr const char* kToleranceWords =
    "tolerance: 1e-4 of a tensor's largest number, and 1e-6; in half precision 1e-2 and 1e-3";

// What `lockstep model check` says, to people and to programs.

using OrderedJson = nlohmann::ordered_json;

/// A line each, as a person reads them.
std::string facts_words(const ExportedNet& net, const std::string& path);
std::string pass_words(const char* mode, const Reached& reached);
std::string comparison_words(const Comparison& comparison, const std::string& sample);

OrderedJson facts_json(const ExportedNet& net, const std::string& path);
OrderedJson comparison_json(const Comparison& comparison, const std::string& sample);

}  // namespace lockstep::model_check
