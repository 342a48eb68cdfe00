#include "lockstep/checkpoint/pickle_node.h"

#include <torch/types.h>

#include <algorithm>

#include "lockstep/base/format.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr int64_t kFreeToRepeat = int64_t{1}
                                  << 24;  // bytes of an expanded tensor that need no storage of their own

/// The elements a storage must have, or -1 where the claim makes no sense. Sets numel.
int64_t reach(const TensorClaim& claim, int64_t& numel) {
  numel = 1;
  if (claim.offset < 0 || claim.offset > kMostElements || claim.sizes.size() > kMostDimensions) return -1;
  auto last = claim.offset;
  for (size_t i = 0; i < claim.sizes.size(); ++i) {
    const auto size = claim.sizes[i], stride = claim.strides[i];
    if (size < 0 || size > kMostElements || stride < 0) return -1;
    if (size == 0) numel = 0;
    if (numel > 0 && size > kMostElements / numel) return -1;
    numel *= size;
    if (size < 2) continue;
    if (stride > kMostElements / size) return -1;
    last += (size - 1) * stride;
    if (last > kMostElements) return -1;
  }
  return numel == 0 ? 0 : last + 1;
}

}  // namespace

at::Tensor rebuild_tensor(const at::Tensor& bytes, const TensorClaim& claim, const Cursor& input) {
  int64_t numel = 0;
  const auto needed = claim.sizes.size() == claim.strides.size() ? reach(claim, numel) : -1;
  const auto item = static_cast<int64_t>(c10::elementSize(claim.dtype));
  if (needed < 0 || needed * item > bytes.numel()) {
    input.fail(format("the file is damaged: a tensor of shape {} and strides {} reaches beyond its {} bytes",
                      c10::str(at::IntArrayRef(claim.sizes)), c10::str(at::IntArrayRef(claim.strides)),
                      bytes.numel()));
  }
  if (numel * item > std::max(bytes.numel(), kFreeToRepeat)) {
    input.fail("the file holds an expanded tensor much larger than its data",
               "in Python, save a clone() of it");
  }
  const auto options = at::TensorOptions().dtype(claim.dtype);
  if (bytes.is_meta()) return at::empty_strided(claim.sizes, claim.strides, options.device(at::kMeta));
  return at::empty({0}, options)
      .set_(bytes.storage(), numel == 0 ? 0 : claim.offset, claim.sizes, claim.strides);
}

namespace {

constexpr int kDeepest = 100;

// What a value costs as a node and as a Tree, in bytes: measured, rounded up.
constexpr uint64_t kPlain = sizeof(PickleNode) + sizeof(Tree) + sizeof(NodeId);
constexpr uint64_t kPlace = sizeof(Tree) + 2 * sizeof(NodeId);  // in a container
constexpr uint64_t kList = 100, kDict = 500, kTensor = 500;

uint64_t cost_of_kind(PickleNode::Kind kind) {
  using enum PickleNode::Kind;
  switch (kind) {
    case list:
    case tuple:
      return kPlain + kList;
    case dict:
    case object:
      return kPlain + kDict;
    case tensor:
    case storage:
      return kPlain + kTensor;
    default:
      return kPlain;
  }
}

uint64_t cost_of(const PickleNode& node) {
  return cost_of_kind(node.kind) + 2 * node.text.size();  // as a node and as a Tree
}

bool can_be_key(const PickleNode& node) {
  using enum PickleNode::Kind;
  return node.kind == text || node.kind == integer || node.kind == boolean || node.kind == real;
}

}  // namespace

NodeArena::NodeArena(const Cursor& input)
    : input_(input),
      heaviest_(base::kHeldAlways + base::kHeldPerByte * (input.position() + input.left())),
      allowance_(input.position() + input.left()) {}

void NodeArena::too_many() const {
  input_.fail("the pickle holds too many small values for its size", "in Python, save long lists as tensors");
}

void NodeArena::hold(uint64_t bytes) {
  if (!allowance_.take(bytes)) too_many();
}

NodeId NodeArena::add(PickleNode node) {
  node.weight = cost_of(node);
  hold(node.weight);
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId NodeArena::add_text(std::string_view text, PickleNode::Kind kind) {
  return add(PickleNode{.kind = kind, .text = std::string(text)});
}

NodeId NodeArena::add_tensor(at::Tensor tensor) {
  return add(PickleNode{.kind = PickleNode::Kind::tensor, .tensor = std::move(tensor)});
}

NodeId NodeArena::add_tuple(const std::vector<NodeId>& children) {
  const auto tuple = add(PickleNode::Kind::tuple);
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
  outer.weight += kPlace + inner.weight;
  hold(kPlace);
  if (outer.depth > kDeepest)
    input_.fail("the pickle is nested too deeply", "in Python, save flatter dictionaries and lists");
  if (outer.weight > heaviest_) too_many();
  outer.children.push_back(child);
}

void NodeArena::extend(NodeId list, const std::vector<NodeId>& values) {
  want(nodes_[list].kind == PickleNode::Kind::list);
  for (const auto value : values) place(list, value);
}

void NodeArena::set_items(NodeId dict, const std::vector<NodeId>& keys_and_values) {
  const auto kind = nodes_[dict].kind;
  want((kind == PickleNode::Kind::dict || kind == PickleNode::Kind::object) &&
       keys_and_values.size() % 2 == 0);
  for (const auto value : keys_and_values) place(dict, value);
}

void NodeArena::want(bool holds) const {
  if (!holds) input_.fail("the file is damaged: its pickle makes no sense");
}

int64_t NodeArena::integer(NodeId id) const {
  want(nodes_[id].kind == PickleNode::Kind::integer);
  return nodes_[id].integer;
}

std::vector<int64_t> NodeArena::integers(NodeId id) const {
  want(nodes_[id].kind == PickleNode::Kind::tuple || nodes_[id].kind == PickleNode::Kind::list);
  std::vector<int64_t> values;
  for (const auto child : nodes_[id].children) values.push_back(integer(child));
  return values;
}

const std::string& NodeArena::text(NodeId id) const {
  want(nodes_[id].kind == PickleNode::Kind::text);
  return nodes_[id].text;
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

Tree NodeArena::convert_dict(const PickleNode& node) {
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
  using enum PickleNode::Kind;
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

}  // namespace lockstep::checkpoint
