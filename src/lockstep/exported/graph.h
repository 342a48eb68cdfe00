#pragma once
// A graph of torch.export made ready to run: names became numbers of slots, operators handles of the
// dispatcher, and every argument was checked.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::exported {

// What functions of libtorch take for granted of their arguments, as in Python a module around them has
// checked it.

/// Throws Error for arguments with which the function would read or write elsewhere.
using ArgumentCheck = void (*)(const std::vector<c10::IValue>& arguments);

/// By an operator's name with its overload, "aten::lstm.input"; nullptr for a function that checks for
/// itself.
ArgumentCheck find_check(const std::string& name);

struct Graph;

/// What a slot holds while the graph runs.
enum class Holds { tensor, integer, real, truth };

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
  c10::IValue value = {};            // a constant's
  int slot = -1;                     // a slot's
  Cast cast = Cast::none;            // a slot's
  std::vector<Argument> items = {};  // a list's
  c10::TypePtr element = {};         // what a list holds
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
  std::string place;   // in Python's source, "model.py:12, in forward"; may be empty
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
  std::vector<Holds> slots;
};

}  // namespace lockstep::exported
