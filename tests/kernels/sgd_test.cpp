#include "lockstep/kernels/sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

// As torch.optim.SGD: one operation after the other.
void by_operations(const at::Tensor& p, const at::Tensor& g, const at::Tensor& buffer, double lr,
                   double momentum, double dampening, double decay, bool nesterov) {
  auto way = decay != 0 ? at::add(g, p, decay) : g;
  if (momentum != 0) {
    buffer.mul_(momentum).add_(way, 1 - dampening);
    way = nesterov ? at::add(way, buffer, momentum) : buffer;
  }
  p.add_(way, -lr);
}

TEST(Sgd, HasTheBitsOfTheOperations) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "elsewhere libtorch's own operations are taken";
#endif
  at::manual_seed(1);
  constexpr double kLr = 0.0137, kMomentum = 0.9;
  for (const int64_t count : {1, 2, 7, 8, 33, 64, 1037, 70001})
    for (const double dampening : {0.0, 0.3})
      for (const double decay : {0.0, 0.013})
        for (const int kind : {0, 1, 2}) {  // plain, momentum, Nesterov's
          SCOPED_TRACE(format("{} numbers, dampening {}, decay {}, kind {}", count, dampening, decay, kind));
          const double momentum = kind == 0 ? 0 : kMomentum;
          const auto p = at::randn({count}), wanted = p.clone();
          const auto buffer = at::randn({count}), wanted_buffer = buffer.clone();
          for (int step = 0; step < 3; ++step) {
            const auto g = at::randn({count});
            by_operations(wanted, g, wanted_buffer, kLr, momentum, dampening, decay, kind == 2);
            take_sgd_step({.lr = static_cast<float>(kLr),
                           .momentum = static_cast<float>(momentum),
                           .dampening_left = static_cast<float>(1 - dampening),
                           .weight_decay = static_cast<float>(decay),
                           .nesterov = kind == 2},
                          p.mutable_data_ptr<float>(), g.const_data_ptr<float>(),
                          kind == 0 ? nullptr : buffer.mutable_data_ptr<float>(), count, level());
          }
          EXPECT_TRUE(p.equal(wanted));
          EXPECT_TRUE(buffer.equal(wanted_buffer));
        }
}

}  // namespace
}  // namespace lockstep::kernels
