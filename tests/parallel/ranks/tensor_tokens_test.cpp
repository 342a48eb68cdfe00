// Embedding and norm of a team that shares its tokens: values and gradients are the plain layers'.
#include "lockstep/parallel/tensor_layers.h"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using test::own;
using test::world;

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
    try {
      shared.forward(at::tensor({int64_t{0}, token}));
      FAIL() << token << " was looked up";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("token " + std::to_string(token) + " is not one of the 12"),
                std::string::npos)
          << error.what();
    }
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
