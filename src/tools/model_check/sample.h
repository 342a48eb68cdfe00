#pragma once
// What Python computed with an exported model, and whether it is computed here.

#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/exported.h"

namespace lockstep::model_check {

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

}  // namespace lockstep::model_check
