#include <ATen/ATen.h>

#include "comm/group.h"
#include "ranks.h"

namespace lockstep {
namespace {

TEST(Gloo, SumsOverTheRanks) {
  const Job& job = test::runtime().job();
  auto group = comm::connect(test::runtime(), {.backend = "gloo"});
  std::vector<at::Tensor> tensors = {at::full({1000}, job.rank + 1.0)};
  group->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0].sum().item<double>(), 1000.0 * job.world * (job.world + 1) / 2);
  EXPECT_EQ(group->getBackendName(), "gloo");
}

}  // namespace
}  // namespace lockstep
