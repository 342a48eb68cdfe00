#pragma once
// A graph of torch.export, compiled and run: names become numbers of slots, operators handles of the
// dispatcher, and every argument is checked. It runs through the dispatcher: autograd, autocast and hooks see
// it as they see a model written by hand.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/exported/archive.h"

namespace lockstep::exported {

// What libtorch's functions take for granted of their arguments, as in Python a module has checked it.

/// Throws Error for arguments with which the function would read or write elsewhere.
using ArgumentCheck = void (*)(const std::vector<c10::IValue>& arguments);

/// By an operator's name with its overload, "aten::lstm.input"; nullptr for one that checks itself.
ArgumentCheck find_check(const std::string& name);

struct Graph;

/// What a slot holds while the graph runs.
enum class SlotType { tensor, integer, real, truth };

/// A number from a slot where an operator wants something else.
enum class Cast { none, to_tensor, to_real };

struct Argument {
  enum class Kind {
    constant,
    slot,    // a value that was given or computed before
    list,    // of arguments
    device,  // the one the model was exported on: when it runs, the one it is on
  };
  Kind kind = Kind::constant;
  c10::IValue value = {};             // a constant's
  int slot = -1;                      // a slot's
  SlotType holds = SlotType::tensor;  // a slot's
  Cast cast = Cast::none;             // a slot's
  std::vector<Argument> items = {};   // a list's
  c10::TypePtr element = {};          // what a list holds
};

/// Arithmetic on sizes, as Python's.
using Arithmetic = c10::IValue (*)(const std::vector<c10::IValue>&);

struct Node {
  enum class Kind {
    op,          // of the dispatcher
    arithmetic,  // on numbers
    branch,      // torch.cond
    set_grad,    // torch.no_grad(), torch.enable_grad()
    autocast,    // torch.autocast()
    nested,      // a graph that runs as if it stood here
  };
  Kind kind = Kind::op;
  std::string target;  // "aten.linear.default"
  std::string place;   // in Python's source, "model.py:12"; may be empty
  std::optional<c10::OperatorHandle> op = {};
  ArgumentCheck check = nullptr;  // of op's arguments, before it is called
  Arithmetic arithmetic = nullptr;
  std::vector<Argument> arguments = {};
  std::vector<std::unique_ptr<Graph>> graphs = {};
  std::vector<int> outputs = {};  // slots; -1: not used
  bool gives_list = false;        // one list of tensors, dealt out to the slots
  std::vector<int> done = {};     // slots that nobody reads afterwards

  // in eval mode, where there is no graph of its own for it
  std::vector<std::pair<size_t, c10::IValue>> eval_arguments = {};  // by number
  bool only_in_training = false;                                    // there its first argument is its result
};

struct Graph {
  std::vector<int> inputs;  // slots; -1: a constant that nobody reads
  std::vector<Argument> outputs;
  std::vector<Node> nodes;
  std::vector<SlotType> slots;
};

// Compiling: compile.cpp, and fuse.cpp for neighbors that kernels of our own compute in one.

/// What a graph and those inside it call.
struct GraphCalls {
  std::map<std::string, int64_t> operators;  ///< "aten::linear", how often
  std::set<std::string> draws;               ///< of those, the ones that draw numbers in eval mode, too
  std::set<std::string> changed;             ///< values that are changed in place, by name
  int on = 0, off = 0;                       ///< training flags of dropout and norms
};

/// `counters`: the inputs that count a norm's batches. Refusal, which names the operator, if it cannot run.
Graph compile(const Json& graph, const std::set<std::string>& counters, GraphCalls& calls);

/// max_pool2d(relu(x), 2), relu(linear(x)) and linear(x) become one node each, where one follows the other
/// and nobody else reads what lies between them.
void fuse(Graph& graph);

// Running: run.cpp.

/// How a graph runs.
struct GraphMode {
  at::Device device;    ///< in place of the one it was exported on
  at::DeviceType home;  ///< the kind of that one
  bool eval = false;    ///< with what eval mode changes
};

/// Outputs for inputs, one for each of the graph's.
std::vector<c10::IValue> run(const Graph& graph, std::vector<c10::IValue> inputs, const GraphMode& way);

// The Python functions on sizes and numbers that a graph may call: arithmetic.cpp.

struct NamedArithmetic {
  Arithmetic run;
  size_t arguments;
};

/// By the name in the file, "_operator.add"; nullptr where there is none.
const NamedArithmetic* find_arithmetic(const std::string& name);

/// A number in a tensor's place, as Python's argument parser makes it: it decides no result's dtype.
at::Tensor wrapped_number(const c10::IValue& value);

/// A number as an integer: True is 1.
int64_t integer_of(const c10::IValue& value);

}  // namespace lockstep::exported
