#pragma once
// An exported file, read: its graph, what that takes and gives, and its tensors in a module.

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/exported/archive.h"
#include "lockstep/exported/graph.h"
#include "lockstep/exported/weights.h"

namespace lockstep::exported {

// What an exported graph takes and gives, and the check of what it is given.

/// A tensor as the file describes it.
struct TensorMeta {
  at::ScalarType dtype;
  std::vector<std::optional<int64_t>> sizes;  ///< nothing where the size may change
  std::vector<std::string> symbols;           ///< then its name, or an expression of names
};

struct Input {
  enum class Kind { parameter, buffer, constant_tensor, user, constant };
  Kind kind;
  std::string name;           ///< of a parameter or buffer Python's; of a user's input its argument's
  bool saved = true;          ///< a buffer in the state_dict
  std::string argument = {};  ///< its name in the graph
  std::optional<TensorMeta> meta = {};  ///< of a user's tensor
  std::string value = {};               ///< of what is no tensor: "int" of a size, or a constant as text
  c10::IValue fixed = {};               ///< a constant
};

/// Does the user give it, or a constant in its place?
bool is_given(const Input& input);

struct Output {
  std::string name;  ///< in the graph, or what it is if it is no tensor: "int"
  std::optional<TensorMeta> meta = {};
};

struct Range {
  int64_t least, most;
};

struct Signature {
  std::vector<Input> inputs;            ///< one for each of the graph's
  std::vector<Output> outputs;          ///< likewise
  std::vector<size_t> given;            ///< the inputs of kind user or constant, by number
  std::map<std::string, Range> ranges;  ///< of symbols
};

/// From the JSON of the whole model.
Signature read_signature(const Json& model);

/// InputError that names the input where one is not as the model was exported. `given`: the user's, one for
/// each of signature.given.
void check_inputs(const Signature& signature, const std::vector<c10::IValue>& given, const std::string& path);

struct ExportedProgram {
  std::string path;
  std::string torch_version, schema;  // who wrote it, and in which form: "8.20"
  bool is_newer = false;              // than the forms that are known
  std::string digest;                 // of models/model.json
  at::DeviceType home = at::kCPU;     // what the model was exported on
  Graph graph;
  Signature signature;
  GraphCalls calls;
  Weights weights = {};  // and constants, until they are bound
  std::vector<at::Tensor> tensors =
      {};  // for each of the graph's inputs; undefined where the user gives a value
};

/// InputError for what is not whole, or cannot be run here.
ExportedProgram read_program(const std::string& path);
/// From the text of models/model.json alone, without a tensor.
ExportedProgram read_program(std::string_view model_json, const std::string& path);

// The tensors that a program runs on belong to a module with Python's names.

/// What a state_dict has besides the module's names, and what of them it lacks.
struct StateNames {
  std::vector<std::pair<std::string, std::string>> tied;  ///< second name, first name
  std::vector<std::string> unsaved;
};

/// Registers each parameter and buffer once, under the first of its names, in submodules as Python has them.
void bind(ExportedProgram& program, torch::nn::Module& root, StateNames& names);

/// Binds the same model's graph for evaluation to the tensors that train; only its constants are its own.
/// InputError if it is another model.
void bind_like(ExportedProgram& program, const ExportedProgram& train);

/// Constants go where the parameters went.
void move_constants(ExportedProgram& program, at::Device device);

}  // namespace lockstep::exported
