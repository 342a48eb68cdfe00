// Layers that ranks share: outputs and gradients are the unsplit layer's. Small whole numbers are summed
// without rounding in any order, so there the bits are equal; elsewhere they are close.
#include "lockstep/parallel/tensor_layers.h"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "parallel/ranks_group.h"
#include "refusal.h"

namespace lockstep {
namespace {

using test::own;
using test::world;

constexpr int64_t kIn = 8, kOut = 12, kSamples = 3, kTokens = 4;

// The job's ranks over a backend; some tests are of what gloo's and MPI's own collectives do.
class TensorLayers : public ::testing::TestWithParam<std::string> {
 protected:
  static Team team(const std::string& backend = GetParam()) {
    static const auto mpi =
        comm::connect(test::runtime(), {.backend = "mpi", .timeout = std::chrono::seconds(30)});
    return {test::runtime().job(), backend == "mpi" ? mpi : test::group(), at::kCPU};
  }
};

at::Tensor whole_numbers(at::IntArrayRef shape, uint64_t seed) {
  return at::randint(-4, 5, shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

at::Tensor numbers(bool exact, at::IntArrayRef shape, uint64_t seed) {
  return exact ? whole_numbers(shape, seed) : at::randn(shape, at::detail::createCPUGenerator(seed));
}

void expect_same(const at::Tensor& mine, const at::Tensor& wanted, bool exact, const char* what) {
  ASSERT_EQ(mine.sizes(), wanted.sizes()) << what;
  if (exact) {
    EXPECT_TRUE(at::equal(mine, wanted)) << what << "\n" << mine << "\n" << wanted;
  } else {
    EXPECT_TRUE(at::allclose(mine, wanted, 1e-5, 1e-6)) << what << (mine - wanted).abs().max();
  }
}

// A whole layer with its input, and what they come to where `seed` weighs the outputs.
struct Whole {
  torch::nn::Linear layer{kIn, kOut};
  at::Tensor input, output, weights;

  explicit Whole(bool exact) {
    const torch::NoGradGuard no_grad;
    if (exact) {
      layer->weight.copy_(whole_numbers({kOut, kIn}, 1));
      layer->bias.copy_(whole_numbers({kOut}, 2));
    }
    input = numbers(exact, {kSamples, kTokens, kIn}, 3).requires_grad_();
    weights = numbers(exact, {kSamples, kTokens, kOut}, 4);
    const torch::AutoGradMode grad(true);
    output = layer->forward(input);
    (output * weights).sum().backward();
  }
};

template <class Layer>
void take(Layer& layer, const Whole& whole, int64_t dim) {
  const torch::NoGradGuard no_grad;
  layer.weight.copy_(own(whole.layer->weight, dim));
  layer.bias.copy_(dim == 0 ? own(whole.layer->bias, 0) : whole.layer->bias);
}

TEST_P(TensorLayers, AColumnLayerIsTheWholeLayer) {
  for (const bool exact : {true, false}) {
    const Whole whole(exact);
    for (const bool gathers : {false, true}) {
      ColumnParallelLinear layer(kIn, kOut, team(), {.gather_output = gathers});
      take(layer, whole, 0);
      const auto input = whole.input.detach().clone().requires_grad_();
      const auto output = layer.forward(input);
      expect_same(output, gathers ? whole.output : own(whole.output, -1), exact, "output");
      (output * (gathers ? whole.weights : own(whole.weights, -1))).sum().backward();
      expect_same(layer.weight.grad(), own(whole.layer->weight.grad(), 0), exact, "weight");
      expect_same(layer.bias.grad(), own(whole.layer->bias.grad(), 0), exact, "bias");
      expect_same(input.grad(), whole.input.grad(), exact, "input");
      EXPECT_TRUE(test::same_everywhere(input.grad()));
    }
  }
}

TEST_P(TensorLayers, ARowLayerIsTheWholeLayerAndAddsItsBiasOnce) {
  for (const bool exact : {true, false}) {
    const Whole whole(exact);
    for (const bool split : {true, false}) {
      RowParallelLinear layer(kIn, kOut, team(), {.input_is_parallel = split});
      take(layer, whole, 1);
      const auto input =
          (split ? own(whole.input.detach(), -1) : whole.input.detach()).clone().requires_grad_();
      const auto output = layer.forward(input);
      expect_same(output, whole.output, exact, "output");
      EXPECT_TRUE(test::same_everywhere(output));
      (output * whole.weights).sum().backward();
      expect_same(layer.weight.grad(), own(whole.layer->weight.grad(), 1), exact, "weight");
      expect_same(layer.bias.grad(), whole.layer->bias.grad(), exact, "bias");
      expect_same(input.grad(), split ? own(whole.input.grad(), -1) : whole.input.grad(), exact, "input");
    }
  }
}

// Tokens shared out before a column layer and after a row layer, as sequence parallelism has them.
TEST_P(TensorLayers, TokensAreGatheredIntoAndScatteredOutOfSplitLayers) {
  for (const bool exact : {true, false}) {
    const Whole whole(exact);
    const auto group = team();
    ColumnParallelLinear column(kIn, kOut, group, {.copy_input = false});
    take(column, whole, 0);
    const auto tokens = own(whole.input.detach(), 1).clone().requires_grad_();
    (column.forward(gather_to_group(tokens, group, 1)) * own(whole.weights, -1)).sum().backward();
    expect_same(tokens.grad(), own(whole.input.grad(), 1), exact, "tokens of a column layer");

    RowParallelLinear row(kIn, kOut, group, {.scatter_tokens = true});
    take(row, whole, 1);
    const auto input = own(whole.input.detach(), -1).clone().requires_grad_();
    const auto output = row.forward(input);
    expect_same(output, own(whole.output, 1), exact, "output of a row layer");
    (output * own(whole.weights, 1)).sum().backward();
    expect_same(row.weight.grad(), own(whole.layer->weight.grad(), 1), exact, "weight of a row layer");
    expect_same(row.bias.grad(), whole.layer->bias.grad(), exact, "bias of a row layer");
    expect_same(input.grad(), own(whole.input.grad(), -1), exact, "input of a row layer");
  }
}

INSTANTIATE_TEST_SUITE_P(Over, TensorLayers, ::testing::Values("gloo", "mpi"),
                         [](const auto& info) { return info.param; });

TEST(TensorLayersStart, SharesAreTheUnsplitLayersBits) {
  const Team team(test::runtime().job(), test::group(), at::kCPU);
  torch::manual_seed(5);
  const torch::nn::Linear first(kIn, kOut), second(kOut, kIn);
  torch::manual_seed(5);
  const ColumnParallelLinear column(kIn, kOut, team);
  const RowParallelLinear row(kOut, kIn, team);
  EXPECT_TRUE(at::equal(column.weight, own(first->weight, 0)));
  EXPECT_TRUE(at::equal(column.bias, own(first->bias, 0)));
  EXPECT_TRUE(at::equal(row.weight, own(second->weight, 1)));
  EXPECT_TRUE(at::equal(row.bias, second->bias));
}

TEST(TensorLayersStart, AWidthThatDoesNotSplitIsAnErrorOfAllRanks) {
  const Team team(test::runtime().job(), test::group(), at::kCPU);
  if (world() == 1) GTEST_SKIP() << "one rank takes any width";
  EXPECT_TRUE(test::has(test::error_from([&] { ColumnParallelLinear(kIn, 33, team); }).what(),
                        "33 outputs of a linear layer cannot be divided evenly among"));
  EXPECT_THROW(RowParallelLinear(33, kOut, team), InputError);
  EXPECT_THROW(split_to_group(at::ones({2, 33}), team, 1), InputError);
  EXPECT_THROW(reduce_scatter_from_group(at::ones({2, 33}), team, 1), InputError);
}

// Embedding and norm of a team that shares its tokens: values and gradients are the plain layers'.

Team token_team() {
  return {test::runtime().job(), test::group(), at::kCPU};
}

// Each number is one rank's, and the others add zeros: the bits are the plain layer's.
TEST(VocabParallelEmbedding, HasThePlainLayersBits) {
  torch::manual_seed(3);
  const torch::nn::Embedding whole(12, 5);
  torch::manual_seed(3);
  VocabParallelEmbedding shared(12, 5, token_team());
  EXPECT_TRUE(at::equal(shared.weight, own(whole->weight, 0)));
  const auto tokens = at::randint(12, {4, 6}, at::detail::createCPUGenerator(8), at::kLong);
  const auto weights = at::randn({4, 6, 5}, at::detail::createCPUGenerator(9));
  const auto expected = at::embedding(whole->weight, tokens);
  const auto output = shared.forward(tokens);
  EXPECT_TRUE(at::equal(output, expected));
  (expected * weights).sum().backward();
  (output * weights).sum().backward();
  EXPECT_TRUE(at::equal(shared.weight.grad(), own(whole->weight.grad(), 0)));
}

TEST(VocabParallelEmbedding, RefusesTokensThatNoRankHas) {
  VocabParallelEmbedding shared(12, 5, token_team());
  for (const int64_t token : {int64_t{-1}, int64_t{12}}) {
    EXPECT_TRUE(test::has(test::error_from([&] {
                            shared.forward(at::tensor({int64_t{0}, token}));
                          }).what(),
                          "token " + std::to_string(token) + " is not one of the 12"));
  }
  EXPECT_EQ(shared.forward(at::empty({0}, at::kLong)).sizes(), (std::vector<int64_t>{0, 5}));
  if (world() > 1) {
    EXPECT_THROW(VocabParallelEmbedding(13, 5, token_team()), InputError);
  }
}

TEST(SequenceParallelNorm, IsThePlainNormOfTheTokensTogether) {
  torch::nn::LayerNorm whole(torch::nn::LayerNormOptions({6}));
  SequenceParallelNorm shared(6, token_team());
  const auto input = at::randn({3, 4, 6}, at::detail::createCPUGenerator(5)).requires_grad_();
  const auto mine = own(input.detach(), 1).clone().requires_grad_();
  const auto weights = at::randn({3, 4, 6}, at::detail::createCPUGenerator(6));
  const auto expected = whole->forward(input);
  const auto output = shared.forward(mine);
  EXPECT_TRUE(at::equal(output, own(expected, 1)));  // a token's norm is its own
  (expected * weights).sum().backward();
  (output * own(weights, 1)).sum().backward();
  EXPECT_TRUE(at::equal(mine.grad(), own(input.grad(), 1)));
  EXPECT_TRUE(at::allclose(shared.weight.grad(), whole->weight.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(shared.bias.grad(), whole->bias.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(test::same_everywhere(shared.weight.grad()));
  EXPECT_TRUE(test::same_everywhere(shared.bias.grad()));
}

}  // namespace
}  // namespace lockstep
