// Which neighbours in a graph become one node. That the bits stay is shown beside Python, by the model
// `joined` of the zoo.
#include "lockstep/exported/graph.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace lockstep::exported {
namespace {

Argument slot(int number) {
  return {.kind = Argument::Kind::slot, .slot = number};
}
Argument constant(c10::IValue value) {
  return {.value = std::move(value)};
}

Node op(const char* target, std::vector<Argument> arguments, int output) {
  Node node;
  node.target = target;
  node.arguments = std::move(arguments);
  node.outputs = {output};
  return node;
}

Node relu(int from, int to, const char* name = "torch.ops.aten.relu.default") {
  return op(name, {slot(from)}, to);
}

Node pool(int from, int to, int64_t stride = 2, bool ceil = false) {
  using Numbers = std::vector<int64_t>;
  return op("torch.ops.aten.max_pool2d.default",
            {slot(from), constant(Numbers{2, 2}), constant(Numbers{stride, stride}), constant(Numbers{0, 0}),
             constant(Numbers{1, 1}), constant(ceil)},
            to);
}

Node linear(int from, int to, bool bias = true) {
  return op("torch.ops.aten.linear.default", {slot(from), slot(8), bias ? slot(9) : constant(c10::IValue())},
            to);
}

Node convolution(int from, int to) {
  return op("torch.ops.aten.conv2d.default", {slot(from), slot(8)}, to);
}

Node view(int from, int to) {
  return op("torch.ops.aten.view.default", {slot(from)}, to);
}

// How many nodes are left of these, which give slot `result` (and another, where a value is read twice).
template <class... Nodes>
size_t left_of(std::initializer_list<int> results, Nodes... nodes) {
  Graph graph;
  graph.slots.assign(10, SlotType::tensor);
  graph.inputs = {0};
  (graph.nodes.push_back(std::move(nodes)), ...);
  for (const int result : results) graph.outputs.push_back(slot(result));
  fuse(graph);
  EXPECT_EQ(graph.nodes.back().outputs, std::vector<int>{*results.begin()});
  return graph.nodes.size();
}

constexpr const char* kInPlace = "torch.ops.aten.relu_.default";

TEST(Fuse, APoolTakesTheReluBeforeIt) {
  EXPECT_EQ(left_of({2}, relu(0, 1), pool(1, 2)), 1u);
  EXPECT_EQ(left_of({3}, convolution(0, 1), relu(1, 2, kInPlace), pool(2, 3)), 2u);
}

TEST(Fuse, WhatSomebodyElseReadsStays) {
  EXPECT_EQ(left_of({2, 1}, relu(0, 1), pool(1, 2)), 2u);
  EXPECT_EQ(left_of({3}, relu(0, 1), view(0, 2), pool(1, 3)), 3u);                      // no neighbours
  EXPECT_EQ(left_of({3, 1}, convolution(0, 1), relu(1, 2, kInPlace), pool(2, 3)), 3u);  // it has changed
  EXPECT_EQ(left_of({3}, view(0, 1), relu(1, 2, kInPlace), pool(2, 3)), 3u);            // so has slot 0
  EXPECT_EQ(left_of({2, 1}, linear(0, 1), relu(1, 2)), 2u);
}

TEST(Fuse, ReluTakesTheLinearLayerBeforeIt) {
  EXPECT_EQ(left_of({2}, linear(0, 1), relu(1, 2)), 1u);
  EXPECT_EQ(left_of({2}, linear(0, 1), relu(1, 2, kInPlace)), 1u);
  EXPECT_EQ(left_of({2}, linear(0, 1, false), relu(1, 2)), 2u);
}

}  // namespace
}  // namespace lockstep::exported
