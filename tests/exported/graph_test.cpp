#include "lockstep/exported/graph.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <initializer_list>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::exported {
namespace {

constexpr auto kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

template <class... Values>
c10::IValue computed(const std::string& name, Values... values) {
  const auto* found = find_arithmetic(name);
  if (!found) throw Error("no " + name);
  EXPECT_EQ(found->arguments, sizeof...(values)) << name;
  return found->run({c10::IValue(values)...});
}

template <class... Values>
int64_t whole(const std::string& name, Values... values) {
  return computed(name, values...).toInt();
}

TEST(ExportedArithmetic, DividesAsPython) {
  EXPECT_EQ(whole("_operator.floordiv", 7, 2), 3);
  EXPECT_EQ(whole("_operator.floordiv", -7, 2), -4);
  EXPECT_EQ(whole("_operator.floordiv", 7, -2), -4);
  EXPECT_EQ(whole("_operator.mod", -7, 2), 1);
  EXPECT_EQ(whole("_operator.mod", 7, -2), -1);
  EXPECT_EQ(computed("_operator.truediv", 7, 2).toDouble(), 3.5);
  EXPECT_THROW(computed("_operator.floordiv", 7, 0), Error);
  EXPECT_THROW(computed("_operator.mod", 7, 0), Error);
}

TEST(ExportedArithmetic, StaysDefinedAtTheEndsOfIntegers) {
  EXPECT_EQ(whole("_operator.floordiv", kLeast, int64_t{-1}), kLeast);
  EXPECT_EQ(whole("_operator.mod", kLeast, int64_t{-1}), 0);
  EXPECT_EQ(whole("_operator.add", kMost, int64_t{1}), kLeast);
  EXPECT_EQ(whole("_operator.neg", kLeast), kLeast);
  EXPECT_EQ(whole("_operator.pow", int64_t{2}, kMost), 0);
  EXPECT_EQ(whole("torch.sym_int", 1e300), kMost);
  EXPECT_EQ(whole("math.floor", -1e300), kLeast);
  EXPECT_THROW(computed("math.ceil", std::numeric_limits<double>::quiet_NaN()), Error);
}

TEST(ExportedArithmetic, MixesIntegersAndReals) {
  EXPECT_EQ(computed("_operator.mul", 2, 1.5).toDouble(), 3.0);
  EXPECT_EQ(computed("_operator.pow", 2, -1).toDouble(), 0.5);
  EXPECT_EQ(whole("_operator.pow", 3, 4), 81);
  EXPECT_TRUE(computed("_operator.lt", 1, 1.5).toBool());
  EXPECT_EQ(whole("torch.sym_max", 3, 5), 5);
  EXPECT_EQ(whole("torch.sym_ite", true, 1, 2), 1);
  EXPECT_TRUE(computed("torch.sym_not", false).toBool());
  EXPECT_THROW(computed("_operator.add", "one", 1), Error);
  EXPECT_EQ(find_arithmetic("os.system"), nullptr);
}

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kInput = 3, kHidden = 4, kBatch = 2, kLength = 5;

at::Tensor zeros(auto... sizes) {
  return at::zeros({int64_t{sizes}...});
}

struct Lstm {
  at::Tensor input = at::zeros({kLength, kBatch, kInput});
  int64_t layers = 2;
  bool has_biases = true, bidirectional = true, batch_first = false;
  int64_t shown = kHidden;
  Tensors state = {}, weights = {};

  Lstm& filled() {
    const auto directions = bidirectional ? 2 : 1, cells = static_cast<int>(layers) * directions;
    state = {at::zeros({cells, kBatch, shown}), at::zeros({cells, kBatch, kHidden})};
    for (int cell = 0; cell < cells; ++cell) {
      weights.push_back(at::zeros({4 * kHidden, cell < directions ? kInput : shown * directions}));
      weights.push_back(at::zeros({4 * kHidden, shown}));
      for (int bias = 0; has_biases && bias < 2; ++bias) weights.push_back(at::zeros({4 * kHidden}));
      if (shown != kHidden) weights.push_back(at::zeros({shown, kHidden}));
    }
    return *this;
  }
};

std::vector<c10::IValue> values_of(const Lstm& lstm) {
  return {lstm.input, lstm.state, lstm.weights,       lstm.has_biases, lstm.layers,
          0.0,        true,       lstm.bidirectional, lstm.batch_first};
}

void check(const Lstm& lstm) {
  find_check("aten::lstm.input")(values_of(lstm));
}

TEST(ExportedChecks, KnowTheFunctionsThatTakeShapesForGranted) {
  EXPECT_NE(find_check("aten::lstm.input"), nullptr);
  EXPECT_EQ(find_check("aten::linear"), nullptr);
}

TEST(ExportedChecks, RefuseAQuotientThatItsPlaceHasNoShapeFor) {
  const auto takes = [](const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
    find_check("aten::div.out")({self, other, out});
  };
  const auto row = at::zeros({3});
  EXPECT_NO_THROW(takes(row, at::zeros({1}), row));
  EXPECT_NO_THROW(takes(row, at::zeros({2, 1}), at::zeros({2, 3})));
  EXPECT_THROW(takes(row, at::zeros({2, 1}), row), Error);
  EXPECT_THROW(takes(row, row, at::zeros({0})), Error);
  EXPECT_THROW(takes(row, row, at::Tensor()), Error);
}

TEST(ExportedChecks, RefuseAWeightWhoseNormsAreOthers) {
  const auto v = at::zeros({4, 2, 3});
  const auto takes = [&](const at::Tensor& weight, const at::Tensor& norms, int64_t dim) {
    find_check("aten::_weight_norm")({weight, norms, dim});
  };
  EXPECT_NO_THROW(takes(v, at::zeros({4, 1, 1}), 0));
  EXPECT_NO_THROW(takes(v, at::zeros({1, 1, 3}), 2));
  EXPECT_NO_THROW(takes(v, at::zeros({1, 2, 1}), 1));
  EXPECT_THROW(takes(v, at::zeros({1, 1, 3}), 0), Error);
  EXPECT_THROW(takes(v, at::zeros({0}), 2), Error);
  EXPECT_THROW(takes(at::zeros({}), at::zeros({}), -1), Error);
}

TEST(ExportedChecks, TakeEachLstmOfPython) {
  for (const bool bidirectional : {true, false})
    for (const bool has_biases : {true, false})
      for (const int64_t shown : {kHidden, int64_t{2}})
        EXPECT_NO_THROW(
            check(Lstm{.has_biases = has_biases, .bidirectional = bidirectional, .shown = shown}.filled()));
}

TEST(ExportedChecks, RefuseAnLstmWhoseShapesDoNotFit) {
  const std::vector<void (*)(Lstm&)> ways = {
      [](Lstm& it) { it.input = zeros(kLength, kInput); },
      [](Lstm& it) { it.input = zeros(kLength, kBatch, kInput + 1); },
      [](Lstm& it) { it.batch_first = true; },
      [](Lstm& it) { it.layers = 3; },
      [](Lstm& it) { it.layers = -1; },
      [](Lstm& it) { it.bidirectional = false; },
      [](Lstm& it) { it.has_biases = false; },
      [](Lstm& it) { it.state.pop_back(); },
      [](Lstm& it) { it.state[0] = zeros(4, kBatch); },
      [](Lstm& it) { it.state[1] = zeros(4, kBatch + 1, kHidden); },
      [](Lstm& it) {
        it.state[1] = zeros(1).expand({4, kBatch, int64_t{1} << 40});
      },
      [](Lstm& it) { it.weights.pop_back(); },
      [](Lstm& it) { it.weights[0] = zeros(4 * kHidden, kInput - 1); },
      [](Lstm& it) { it.weights[1] = zeros(kHidden, kHidden); },
      [](Lstm& it) { it.weights[2] = zeros(1); },
      [](Lstm& it) { it.weights[3] = at::Tensor(); },
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    Lstm lstm = Lstm{}.filled();
    ways[i](lstm);
    EXPECT_THROW(check(lstm), Error) << i;
  }
}

// Which neighbors in a graph become one node. That the bits stay is shown beside Python, by the model
// `joined` of the zoo.

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
  EXPECT_EQ(left_of({3}, relu(0, 1), view(0, 2), pool(1, 3)), 3u);                      // no neighbors
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
