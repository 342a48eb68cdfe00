#pragma once
// An argument of the file, made ready and checked against what its operator takes.

#include <ATen/core/function_schema.h>

#include <string>
#include <unordered_map>

#include "lockstep/exported/field.h"
#include "lockstep/exported/graph.h"

namespace lockstep::exported {

/// The values of a graph by name.
class SlotNames {
 public:
  explicit SlotNames(Graph& graph) : graph_(graph) {}
  /// A new slot. Refusal for a name that is taken.
  int add(const std::string& name, Holds holds);
  /// Refusal where nothing before has that name.
  int find(const std::string& name) const;
  Holds holds(int slot) const { return graph_.slots[static_cast<size_t>(slot)]; }

 private:
  Graph& graph_;
  std::unordered_map<std::string, int> slots_;
};

/// As the file has it, of any kind.
Argument read_argument(const Json& json, const SlotNames& names);
/// As the operator wants it: a number in a tensor's place becomes what Python makes of it, one number a list
/// of them. Refusal, which names the argument, for what it does not take.
Argument read_argument(const Json& json, const c10::Argument& wanted, const SlotNames& names);

}  // namespace lockstep::exported
