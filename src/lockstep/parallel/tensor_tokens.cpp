#include "lockstep/parallel/tensor_tokens.h"

#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/parallel/tensor_collectives.h"

namespace lockstep {

VocabParallelEmbedding::VocabParallelEmbedding(int64_t count, int64_t width, const Team& team)
    : team_(team), count_(count) {
  const int64_t own = share_of(count, team, "rows of an embedding");
  first_ = team.rank() * own;
  const torch::nn::Embedding whole(count, width);  // draws the unsplit layer's bits
  weight = register_parameter("weight", whole->weight.detach().narrow(0, first_, own).clone());
}

// A token that no rank has would come out as zeros. A GPU is not waited for: it stops by itself.
void VocabParallelEmbedding::check_range(const at::Tensor& tokens) const {
  if (tokens.numel() == 0) return;
  const auto outside = at::logical_or(tokens < 0, tokens >= count_);
  if (!tokens.is_cpu()) return at::_assert_async(outside.any().logical_not());
  if (!outside.any().item<bool>()) return;
  throw InputError(format("token {} is not one of the {} rows of the embedding",
                          tokens.masked_select(outside)[0].item<int64_t>(), count_),
                   "VocabParallelEmbedding", "take the vocabulary that the tokens were made with");
}

at::Tensor VocabParallelEmbedding::forward(const at::Tensor& tokens) {
  check_range(tokens);
  if (team_.world() == 1) return at::embedding(weight, tokens);
  const auto row = tokens - first_;
  const auto elsewhere = at::logical_or(row < 0, row >= weight.size(0));
  const auto found = at::embedding(weight, row.masked_fill(elsewhere, 0));
  return reduce_from_group(found.masked_fill(elsewhere.unsqueeze(-1), 0), team_);
}

SequenceParallelNorm::SequenceParallelNorm(int64_t width, const Team& team, double eps)
    : team_(team), eps_(eps) {
  weight = register_parameter("weight", at::ones({width}));
  bias = register_parameter("bias", at::zeros({width}));
}

at::Tensor SequenceParallelNorm::forward(const at::Tensor& input) {
  return at::layer_norm(input, weight.sizes(), copy_to_group(weight, team_), copy_to_group(bias, team_),
                        eps_);
}

}  // namespace lockstep
