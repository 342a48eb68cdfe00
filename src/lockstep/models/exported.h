#pragma once
// A model that Python wrote with torch.export.save, trained like any other model and without Python.

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/own_graph.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// An input or an output of an exported model, as its file describes it.
struct ExportedValue {
  std::string name = {};                ///< of the argument of Python's forward
  std::string kind = {};                ///< "float32", or "None", "int", ... of what is no tensor
  std::vector<std::string> sizes = {};  ///< "28", or a name ("s31") where the size may change
};

/// What an exported file holds besides its weights.
struct ExportedFacts {
  std::string torch_version = {};  ///< that wrote it; empty = not said
  std::string schema = {};         ///< "8.20"
  std::vector<ExportedValue> inputs = {}, outputs = {};
  std::map<std::string, std::pair<int64_t, int64_t>> sizes =
      {};                                         ///< least and most of each size that may change
  std::map<std::string, int64_t> operators = {};  ///< by name, how often each is in the graph
  std::vector<std::string> notes = {};            ///< what may differ from Python, a sentence each
};

/// Parameters and buffers stand under Python's names, parameters in Python's order; train() and eval() choose
/// what dropout and norms do. Without an eval_path, eval() turns off the training flags of the one graph.
class ExportedNet : public Net, public OwnStateDict, public OwnGraph {
 public:
  /// InputError for a file that is missing, damaged, not of torch.export.save, or calls what cannot be run.
  explicit ExportedNet(const std::string& path, const std::string& eval_path = {});
  ~ExportedNet() override;
  ExportedNet(const ExportedNet&) = delete;
  ExportedNet& operator=(const ExportedNet&) = delete;

  /// For tasks: one tensor in, one out. Text as one tensor, int64 [n, 3, tokens], reaches inputs called
  /// input_ids, token_type_ids and attention_mask as one of its rows; a model of several inputs else takes
  /// input[:, 0], input[:, 1], ...
  torch::Tensor forward(const torch::Tensor& input) override;
  /// The leaves of Python's arguments in, the leaves of its result out. InputError for another number, dtype
  /// or shape.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs);

  /// What the file says of itself.
  const ExportedFacts& facts() const;

  const std::vector<std::pair<std::string, std::string>>& tied() const override;
  const std::vector<std::string>& unsaved() const override;
  std::string graph_digest() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A model that torch.export.save wrote to `path`; `eval_path`: the same model, exported after eval().
std::shared_ptr<ExportedNet> load_exported(const std::string& path, const std::string& eval_path = {});

/// A copy of the file `original` with the module's parameters and buffers in place of its own: what Python's
/// torch.export.load opens. InputError where names or shapes differ.
void save_exported(const torch::nn::Module& module, const std::string& original, const std::string& path);

}  // namespace lockstep
