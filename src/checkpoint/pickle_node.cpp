#include "checkpoint/pickle_node.h"

#include <algorithm>

#include "base/format.h"

namespace lockstep {

namespace {

constexpr int kDeepest = 100;
constexpr uint64_t kHeaviest = 50'000'000;
constexpr const char* kAsTensors = "in Python, save long lists as tensors";

bool can_be_key(const Node& node) {
  using enum Node::Kind;
  return node.kind == text || node.kind == integer || node.kind == boolean || node.kind == real;
}

}  // namespace

NodeId NodeArena::add(Node node) {
  if (nodes_.size() >= kHeaviest) input_.fail("the pickle holds too many values", kAsTensors);
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId NodeArena::add_text(std::string_view text, Node::Kind kind) {
  return add(Node{.kind = kind, .text = std::string(text)});
}

NodeId NodeArena::add_tensor(at::Tensor tensor) {
  return add(Node{.kind = Node::Kind::tensor, .tensor = std::move(tensor)});
}

NodeId NodeArena::add_tuple(const std::vector<NodeId>& children) {
  const auto tuple = add(Node::Kind::tuple);
  for (const auto child : children) place(tuple, child);
  return tuple;
}

void NodeArena::place(NodeId container, NodeId child) {
  auto& outer = nodes_[container];
  auto& inner = nodes_[child];
  if (outer.frozen || container == child)
    input_.fail("the pickle holds a structure that contains itself",
                "in Python, save state_dict()s and plain values in its place");
  inner.frozen = true;
  outer.depth = std::max(outer.depth, inner.depth + 1);
  outer.weight += inner.weight;
  if (outer.depth > kDeepest)
    input_.fail("the pickle is nested too deeply", "in Python, save flatter dictionaries and lists");
  if (outer.weight > kHeaviest) input_.fail("the pickle holds too many values", kAsTensors);
  outer.children.push_back(child);
}

Tree NodeArena::to_tree(NodeId id) {
  trees_.resize(nodes_.size());
  converted_.resize(nodes_.size());
  if (!converted_[id]) {
    auto tree = convert(id);
    trees_[id] = std::move(tree);
    converted_[id] = true;
  }
  return trees_[id];
}

Tree NodeArena::convert_dict(const Node& node) {
  auto dict = make_dict();
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    if (!can_be_key(nodes_[node.children[i]])) {
      input_.fail("the pickle holds a dictionary whose keys are neither text nor numbers",
                  "in Python, save it with text or numbers for keys");
    }
    put(dict, to_tree(node.children[i]), to_tree(node.children[i + 1]));
  }
  return dict;
}

Tree NodeArena::convert(NodeId id) {
  const auto& node = nodes_[id];
  using enum Node::Kind;
  switch (node.kind) {
    case boolean:
      return node.integer != 0;
    case integer:
      return node.integer;
    case real:
      return node.real;
    case text:
    case global:
      return node.text;
    case tensor:
      return node.tensor;
    case dict:
    case object:
      return convert_dict(node);
    case list:
    case tuple:
      break;
    case none:
    case storage:
      return {};
  }
  std::vector<Tree> values;
  for (const auto child : node.children) values.push_back(to_tree(child));
  if (node.kind == tuple) return c10::ivalue::Tuple::create(std::move(values));
  return make_list(values);
}

}  // namespace lockstep
