// The way in, as a user's program takes it: one session in a process, its exchanges, its end.
#include "lockstep/parallel/session.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "ranks.h"

namespace lockstep {
namespace {

// All in one test: a process joins its job once.
TEST(Session, OpensOnceAndExchanges) {
  {
    const Session session({.backend = "gloo", .device = "cpu"});
    const int rank = session.rank(), world = session.world();
    EXPECT_EQ(rank, test::runtime().job().rank);
    EXPECT_EQ(world, test::runtime().job().world);
    EXPECT_EQ(session.device(), c10::Device(c10::kCPU));
    EXPECT_GE(session.threads(), 1);
    EXPECT_EQ(session.group()->getSize(), world);

    Mean mean;
    for (int i = 0; i <= rank; ++i) mean.add(at::scalar_tensor(rank));
    double sum = 0, count = 0;
    for (int r = 0; r < world; ++r) sum += r * (r + 1), count += r + 1;
    EXPECT_DOUBLE_EQ(session.all_reduce(mean), sum / count);  // weighed by count
    EXPECT_DOUBLE_EQ(mean.value(), rank);
    EXPECT_TRUE(std::isnan(session.all_reduce(Mean())));
    EXPECT_TRUE(std::isnan(Mean().value()));

    ::testing::internal::CaptureStdout();
    session.print("{} of {}", 7, 9);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), rank == 0 ? "7 of 9\n" : "");

    try {
      Session second;
      FAIL() << "two sessions at once";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "this process has a Session already");
    }
  }
  if (test::runtime().job().world == 1) return;
  EXPECT_THROW(Session(), Error) << "its ranks have met and parted";
}

TEST(Mean, LeavesTheLossAlone) {
  const at::Tensor loss = at::scalar_tensor(2.0f).requires_grad_();
  Mean mean;
  mean.add(loss);
  mean.add(5, 2);
  mean.add(at::full({2}, 1.0f));
  EXPECT_DOUBLE_EQ(mean.value(), 14.0 / 5);
  EXPECT_EQ(mean.total(), (std::pair<double, double>(14, 5)));
  EXPECT_FLOAT_EQ(loss.item<float>(), 2);
}

}  // namespace
}  // namespace lockstep
