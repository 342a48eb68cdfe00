#include "lockstep/parallel/tensor_layers.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/parallel/tensor_collectives.h"

namespace lockstep {
namespace {

// torch's own layer draws the values: the shares together have an unsplit layer's bits.
torch::nn::Linear whole_linear(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

at::Tensor share(const at::Tensor& whole, const Team& team, int64_t dim) {
  const int64_t size = whole.size(dim) / team.world();
  return whole.detach().narrow(dim, team.rank() * size, size).clone(at::MemoryFormat::Contiguous);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(int64_t in, int64_t out, const Team& team,
                                           ColumnParallelOptions options)
    : team_(team), options_(options) {
  share_of(out, team, "outputs of a linear layer");
  const auto whole = whole_linear(in, out, options.bias);
  weight = register_parameter("weight", share(whole->weight, team, 0));
  if (options.bias) bias = register_parameter("bias", share(whole->bias, team, 0));
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& input) {
  const auto x = options_.copy_input ? copy_to_group(input, team_) : input;
  const auto own = at::linear(x, weight, bias);
  return options_.gather_output ? gather_from_group(own, team_, -1) : own;
}

RowParallelLinear::RowParallelLinear(int64_t in, int64_t out, const Team& team, RowParallelOptions options)
    : team_(team), options_(options) {
  share_of(in, team, "inputs of a linear layer");
  const auto whole = whole_linear(in, out, options.bias);
  weight = register_parameter("weight", share(whole->weight, team, 1));
  if (options.bias) bias = register_parameter("bias", whole->bias.detach().clone());
}

at::Tensor RowParallelLinear::forward(const at::Tensor& input) {
  const auto own = options_.input_is_parallel ? input : split_to_group(input, team_, -1);
  if (team_.world() == 1) return at::linear(own, weight, bias);
  const auto product = at::linear(own, weight);
  auto sum = options_.scatter_tokens ? reduce_scatter_from_group(product, team_, 1)
                                     : reduce_from_group(product, team_);
  if (!bias.defined()) return sum;
  // a rank that adds it to its own tokens alone sees a part of its gradient
  return sum + (options_.scatter_tokens ? copy_to_group(bias, team_) : bias).to(sum.scalar_type());
}

}  // namespace lockstep
