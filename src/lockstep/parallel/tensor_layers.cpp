#include "lockstep/parallel/tensor_layers.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/comm/group_texts.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What happens to a tensor between layers: one of these forward and another one backward.
enum class Transfer : int64_t { same, sum, part, whole, part_of_sum };

// A CPU sums half types in float: it has no faster way.
at::Tensor summable(const at::Tensor& tensor) {
  const bool widen = tensor.is_cpu() && c10::isReducedFloatingType(tensor.scalar_type());
  return widen ? tensor.to(at::kFloat) : tensor;
}

at::Tensor sum_of(const at::Tensor& tensor, const ProcessGroup& group) {
  const auto wide = summable(tensor);
  std::vector<at::Tensor> sums{wide.is_same(tensor) ? tensor.clone(at::MemoryFormat::Contiguous) : wide};
  group->allreduce(sums)->wait();
  return sums[0].to(tensor.scalar_type());
}

at::Tensor part_of(const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  return tensor.chunk(group->getSize(), dim)[static_cast<size_t>(group->getRank())].contiguous();
}

at::Tensor whole_of(const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  return at::cat(comm::all_gather(group, tensor), dim);
}

// In one tensor: gloo of libtorch 2.7 takes no list.
at::Tensor part_of_sum_of(const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  const auto chunks = summable(tensor).chunk(group->getSize(), dim);
  auto parts = at::cat(chunks);
  auto mine = at::empty(chunks[0].sizes(), parts.options());
  base::own_reduce_scatter_single(*group, mine, parts)->wait();
  return mine.to(tensor.scalar_type());
}

at::Tensor moved(Transfer move, const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  switch (move) {
    case Transfer::sum:
      return sum_of(tensor, group);
    case Transfer::part:
      return part_of(tensor, dim, group);
    case Transfer::whole:
      return whole_of(tensor, dim, group);
    case Transfer::part_of_sum:
      return part_of_sum_of(tensor, dim, group);
    case Transfer::same:
      break;
  }
  return tensor.view_as(tensor);
}

struct TransferOp : torch::autograd::Function<TransferOp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, int64_t there, int64_t back,
                            int64_t dim, const ProcessGroup& group) {
    context->saved_data["back"] = back;
    context->saved_data["dim"] = dim;
    context->saved_data["group"] = group;
    return moved(Transfer{there}, tensor, dim, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    return {moved(Transfer{context->saved_data["back"].toInt()}, gradients[0],
                  context->saved_data["dim"].toInt(), group),
            {},
            {},
            {},
            {}};
  }
};

at::Tensor through(const at::Tensor& tensor, Transfer there, Transfer back, int64_t dim, const Team& team) {
  if (team.world() == 1) return tensor;
  return TransferOp::apply(tensor, static_cast<int64_t>(there), static_cast<int64_t>(back), dim,
                           team.group());
}

void check_parts(const at::Tensor& tensor, const Team& team, int64_t dim) {
  share_of(tensor.size(dim), team, "places of dimension " + std::to_string(dim));
}

}  // namespace

at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team) {
  return through(tensor, Transfer::same, Transfer::sum, 0, team);
}

at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team) {
  return through(tensor, Transfer::sum, Transfer::same, 0, team);
}

at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  check_parts(tensor, team, dim);
  return through(tensor, Transfer::part, Transfer::whole, dim, team);
}

at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  return through(tensor, Transfer::whole, Transfer::part, dim, team);
}

at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  return through(tensor, Transfer::whole, Transfer::part_of_sum, dim, team);
}

at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  check_parts(tensor, team, dim);
  return through(tensor, Transfer::part_of_sum, Transfer::whole, dim, team);
}

int64_t share_of(int64_t count, const Team& team, const std::string& what) {
  const int64_t ranks = team.world();
  if (count % ranks == 0) return count / ranks;
  throw InputError(format("{} {} cannot be divided evenly among {} ranks", count, what, ranks),
                   "parallel.tensor", format("use a multiple of {}, or another parallel.tensor", ranks));
}

VocabParallelEmbedding::VocabParallelEmbedding(int64_t count, int64_t width, const Team& team)
    : team_(team), count_(count) {
  const int64_t own = share_of(count, team, "rows of an embedding");
  first_ = team.rank() * own;
  const torch::nn::Embedding whole(count, width);  // draws the unsplit layer's bits
  weight = register_parameter("weight", whole->weight.detach().narrow(0, first_, own).clone());
}

// A token that no rank has would become zeros. A GPU stops by itself, without a wait for it here.
void VocabParallelEmbedding::check_range(const at::Tensor& tokens) const {
  if (tokens.numel() == 0) return;
  const auto outside = at::logical_or(tokens < 0, tokens >= count_);
  if (!tokens.is_cpu()) return at::_assert_async(outside.any().logical_not());
  if (!outside.any().item<bool>()) return;
  throw InputError(format("token {} is not one of the {} rows of the embedding",
                          tokens.masked_select(outside)[0].item<int64_t>(), count_),
                   "VocabParallelEmbedding", "use the vocabulary that made the tokens");
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
  // a rank that adds it only to its own tokens sees only a part of its gradient
  return sum + (options_.scatter_tokens ? copy_to_group(bias, team_) : bias).to(sum.scalar_type());
}

}  // namespace lockstep
