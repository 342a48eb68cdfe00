#pragma once
// The process group that the tests of this room share, and what they ask of it.

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/comm/connect.h"
#include "ranks.h"

namespace lockstep::test {

inline ProcessGroup group() {
  static const ProcessGroup shared =
      comm::connect(runtime(), {.backend = "gloo", .timeout = std::chrono::seconds(30)});
  return shared;
}

inline int rank() {
  return runtime().job().rank;
}
inline int world() {
  return runtime().job().world;
}

/// This rank's part of a tensor that is split evenly among the ranks.
inline at::Tensor own(const at::Tensor& whole, int64_t dim) {
  return whole.chunk(world(), dim)[static_cast<size_t>(rank())];
}

/// The mean over the ranks.
inline at::Tensor mean(const at::Tensor& mine) {
  at::Tensor sum = mine.detach().clone();
  std::vector<at::Tensor> tensors{sum};
  group()->allreduce(tensors)->wait();
  return sum.div_(world());
}

/// True where every rank holds rank 0's numbers.
inline bool same_everywhere(const at::Tensor& mine) {
  at::Tensor zeros = mine.detach().clone();
  std::vector<at::Tensor> tensors{zeros};
  group()->broadcast(tensors)->wait();
  at::Tensor differs = at::ne(zeros, mine).any().to(at::kInt).reshape({1});
  std::vector<at::Tensor> flags{differs};
  group()->allreduce(flags)->wait();
  return differs.item<int>() == 0;
}

/// A batch that differs from rank to rank.
inline at::Tensor batch(int64_t rows, int64_t columns, int step = 0) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(100 * static_cast<uint64_t>(step) +
                                                                   static_cast<uint64_t>(rank())));
}

}  // namespace lockstep::test
