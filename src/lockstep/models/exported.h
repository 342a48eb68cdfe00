#pragma once
// A model written by Python's torch.export.save. It trains like any other model, without Python.

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

/// An input or output of an exported model, as described in its file.
struct ExportedValue {
  std::string name = {};                ///< name of the argument of Python's forward
  std::string kind = {};                ///< "float32" for a tensor; "None", "int", ... for other values
  std::vector<std::string> sizes = {};  ///< "28", or a name ("s31") if the size may change
};

/// The metadata of an exported file.
struct ExportedFacts {
  std::string torch_version = {};  ///< the torch that wrote the file; empty = unknown
  std::string schema = {};         ///< "8.20"
  std::vector<ExportedValue> inputs = {}, outputs = {};
  std::map<std::string, std::pair<int64_t, int64_t>> sizes =
      {};                                         ///< minimum and maximum of each variable size
  std::map<std::string, int64_t> operators = {};  ///< number of uses of each operator in the graph
  std::vector<std::string> notes = {};            ///< possible differences from Python, one sentence each
};

/// An exported model. Parameters and buffers have Python's names and order. train() and eval() affect dropout
/// and normalization. Without an eval_path, eval() turns off the training flags in the graph.
class ExportedNet : public Net, public OwnStateDict, public OwnGraph {
 public:
  /// Throws InputError if a file is missing, damaged, not from torch.export.save, or uses unknown operators.
  explicit ExportedNet(const std::string& path, const std::string& eval_path = {});
  ~ExportedNet() override;
  ExportedNet(ExportedNet&&) = delete;

  /// For tasks: takes and returns one tensor. Text, int64 [n, 3, tokens], is split into the inputs input_ids,
  /// token_type_ids and attention_mask. Any other model with several inputs gets input[:, 0], input[:, 1],
  /// ...
  torch::Tensor forward(const torch::Tensor& input) override;
  /// Takes the tensors and values in Python's arguments, and returns those in its result. Throws InputError
  /// if their number, dtype or shape is wrong.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs);

  /// The metadata of the file.
  const ExportedFacts& facts() const;

  const std::vector<std::pair<std::string, std::string>>& tied() const override;
  const std::vector<std::string>& unsaved() const override;
  std::string graph_digest() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads a file from torch.export.save; `eval_path`: the same model, exported after eval().
std::shared_ptr<ExportedNet> load_exported(const std::string& path, const std::string& eval_path = {});

/// Writes a copy of `original` with the module's parameters and buffers, which torch.export.load can read.
/// Throws InputError if names or shapes differ.
void save_exported(const torch::nn::Module& module, const std::string& original, const std::string& path);

}  // namespace lockstep
