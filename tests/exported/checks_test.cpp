#include "lockstep/exported/graph.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"

namespace lockstep::exported {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kInput = 3, kHidden = 4, kBatch = 2, kLength = 5;

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
      [](Lstm& it) {
        it.input = at::zeros({kLength, kInput});
      },
      [](Lstm& it) {
        it.input = at::zeros({kLength, kBatch, kInput + 1});
      },
      [](Lstm& it) { it.batch_first = true; },
      [](Lstm& it) { it.layers = 3; },
      [](Lstm& it) { it.layers = -1; },
      [](Lstm& it) { it.bidirectional = false; },
      [](Lstm& it) { it.has_biases = false; },
      [](Lstm& it) { it.state.pop_back(); },
      [](Lstm& it) {
        it.state[0] = at::zeros({4, kBatch});
      },
      [](Lstm& it) {
        it.state[1] = at::zeros({4, kBatch + 1, kHidden});
      },
      [](Lstm& it) {
        it.state[1] = at::zeros({1}).expand({4, kBatch, int64_t{1} << 40});
      },
      [](Lstm& it) { it.weights.pop_back(); },
      [](Lstm& it) {
        it.weights[0] = at::zeros({4 * kHidden, kInput - 1});
      },
      [](Lstm& it) {
        it.weights[1] = at::zeros({kHidden, kHidden});
      },
      [](Lstm& it) { it.weights[2] = at::zeros({1}); },
      [](Lstm& it) { it.weights[3] = at::Tensor(); },
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    Lstm lstm = Lstm{}.filled();
    ways[i](lstm);
    EXPECT_THROW(check(lstm), Error) << i;
  }
}

}  // namespace
}  // namespace lockstep::exported
