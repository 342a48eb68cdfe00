#include "lockstep/parallel/tensor_collectives.h"

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/comm/group_texts.h"
#include "lockstep/parallel/functions/custom_function.h"

namespace lockstep {
namespace {

using parallel::AutogradContext;
using parallel::variable_list;

// What happens to a tensor on its way; a seam is one of them forward and another one backward.
enum class Move : int64_t { same, sum, part, whole, part_of_sum };

// Half types are summed in float on a CPU, which has no fast way of its own for them.
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

// In one tensor: libtorch 2.7's gloo takes no list of them.
at::Tensor part_of_sum_of(const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  const auto chunks = summable(tensor).chunk(group->getSize(), dim);
  auto parts = at::cat(chunks);
  auto mine = at::empty(chunks[0].sizes(), parts.options());
  base::own_reduce_scatter_single(*group, mine, parts)->wait();
  return mine.to(tensor.scalar_type());
}

at::Tensor moved(Move move, const at::Tensor& tensor, int64_t dim, const ProcessGroup& group) {
  switch (move) {
    case Move::sum:
      return sum_of(tensor, group);
    case Move::part:
      return part_of(tensor, dim, group);
    case Move::whole:
      return whole_of(tensor, dim, group);
    case Move::part_of_sum:
      return part_of_sum_of(tensor, dim, group);
    case Move::same:
      break;
  }
  return tensor.view_as(tensor);
}

struct Seam : torch::autograd::Function<Seam> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, int64_t there, int64_t back,
                            int64_t dim, const ProcessGroup& group) {
    context->saved_data["back"] = back;
    context->saved_data["dim"] = dim;
    context->saved_data["group"] = group;
    return moved(Move{there}, tensor, dim, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    return {moved(Move{context->saved_data["back"].toInt()}, gradients[0], context->saved_data["dim"].toInt(),
                  group),
            {},
            {},
            {},
            {}};
  }
};

at::Tensor through(const at::Tensor& tensor, Move there, Move back, int64_t dim, const Team& team) {
  if (team.world() == 1) return tensor;
  return Seam::apply(tensor, static_cast<int64_t>(there), static_cast<int64_t>(back), dim, team.group());
}

void check_parts(const at::Tensor& tensor, const Team& team, int64_t dim) {
  share_of(tensor.size(dim), team, "places of dimension " + std::to_string(dim));
}

}  // namespace

at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team) {
  return through(tensor, Move::same, Move::sum, 0, team);
}

at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team) {
  return through(tensor, Move::sum, Move::same, 0, team);
}

at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  check_parts(tensor, team, dim);
  return through(tensor, Move::part, Move::whole, dim, team);
}

at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  return through(tensor, Move::whole, Move::part, dim, team);
}

at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  return through(tensor, Move::whole, Move::part_of_sum, dim, team);
}

at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim) {
  check_parts(tensor, team, dim);
  return through(tensor, Move::part_of_sum, Move::whole, dim, team);
}

int64_t share_of(int64_t count, const Team& team, const std::string& what) {
  const int64_t ranks = team.world();
  if (count % ranks == 0) return count / ranks;
  throw InputError(format("{} {} do not split evenly among {} ranks", count, what, ranks), "parallel.tensor",
                   format("take a multiple of {}, or another parallel.tensor", ranks));
}

}  // namespace lockstep
