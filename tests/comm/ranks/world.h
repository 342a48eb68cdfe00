#pragma once
// Groups for tests under mpirun.

#include <ATen/ATen.h>

#include "lockstep/comm/connect.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep::test {

inline int own_rank() {
  return runtime().job().rank;
}
inline int world() {
  return runtime().job().world;
}

inline ProcessGroup open(const std::string& backend,
                         std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return comm::connect(runtime(), {.backend = backend, .timeout = timeout});
}

/// The tensor itself after an all-reduce of it.
inline at::Tensor reduced(const ProcessGroup& group, const at::Tensor& tensor,
                          c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group->allreduce(tensors, options)->wait();
  return tensors[0];
}

/// This rank's own numbers: of integers small ones, of others with zeros of both signs.
inline at::Tensor numbers(int64_t items, at::ScalarType type, int seed = 0) {
  const auto generator =
      at::detail::createCPUGenerator(1000U + static_cast<uint64_t>(own_rank() + 64 * seed));
  if (at::isIntegralType(type, true)) return at::randint(0, 3, {items}, generator).to(type);
  auto some = at::randn({items}, generator);
  some.masked_fill_(at::rand({items}, generator) < 0.05, own_rank() % 2 == 0 ? 0.0 : -0.0);
  return some.to(type);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

}  // namespace lockstep::test
