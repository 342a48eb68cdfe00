#include "lockstep/parallel/comm_hook.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using namespace test;
namespace nn = torch::nn;

auto two_layers() {
  return nn::Sequential(nn::Linear(16, 32), nn::Linear(32, 8));
}

TEST(CommHook, ALambdaMeetsEveryBucketOnce) {
  const auto model = ddp(two_layers(), group(), {.bucket_cap_mb = 0.00001});
  std::vector<int64_t> indices;
  int64_t elements = 0, last = 0;
  model->register_comm_hook([&](GradBucket& bucket) {
    indices.push_back(bucket.index());
    elements += bucket.buffer().numel();
    last += bucket.is_last();
    EXPECT_EQ(bucket.gradients().size(), bucket.parameters().size());
    for (size_t i = 0; i < bucket.gradients().size(); ++i)
      EXPECT_EQ(bucket.gradients()[i].sizes(), bucket.parameters()[i].sizes());
    return hooks::ready(at::full_like(bucket.buffer(), 3));
  });
  model->forward(batch(4, 16)).sum().backward();  // one bucket: the order is not known yet
  indices.clear();
  elements = last = 0;
  model->zero_grad();
  model->forward(batch(4, 16)).sum().backward();
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(elements, 16 * 32 + 32 + 32 * 8 + 8);
  EXPECT_EQ(last, 1);
  for (const auto& parameter : model->parameters()) EXPECT_EQ(parameter.grad().mean().item<float>(), 3);
}

TEST(CommHook, ItsErrorReachesBackward) {
  const auto model = ddp(two_layers(), group());
  model->register_comm_hook([&](GradBucket& bucket) {
    return hooks::then(hooks::ready(bucket.buffer()),
                       [](at::Tensor) -> at::Tensor { throw std::runtime_error("hook broke"); });
  });
  try {
    model->forward(batch(4, 16)).sum().backward();
    FAIL() << "backward did not throw";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("hook broke"), std::string::npos) << error.what();
  }
}

TEST(CommHook, NamesOfTheConfig) {
  for (const auto* name : {"allreduce", "fp16", "bf16", "powersgd"})
    EXPECT_TRUE(hooks::by_name(name, group())) << name;
  EXPECT_THROW(hooks::by_name("zip", group()), InputError);
  EXPECT_THROW(hooks::powersgd(group(), {.start_powerSGD_iter = 1}), InputError);
  EXPECT_THROW(hooks::powersgd(group(), {.matrix_approximation_rank = 0}), InputError);
}

// With several buckets in flight; Python's own mixes up its collectives here (see cases.txt).
TEST(CommHook, PowerSgdKeepsRanksTogetherOverManyBuckets) {
  torch::manual_seed(5);
  const auto net = two_layers();
  const auto model = ddp(net, group(), {.bucket_cap_mb = 0.00001});
  model->register_comm_hook(
      hooks::powersgd(group(), {.matrix_approximation_rank = 2, .start_powerSGD_iter = 2}));
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.2));
  const at::Tensor goal = at::randn({16, 8}, at::detail::createCPUGenerator(3));
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const auto input = batch(16, 16, step);
    const auto loss = (model->forward(input) - input.matmul(goal)).square().mean();
    (step == 0 ? first : last) = loss.item<double>();
    model->zero_grad();
    loss.backward();
    sgd.step();
  }
  for (const auto& parameter : model->parameters()) EXPECT_TRUE(same_everywhere(parameter));
  EXPECT_LT(last, first / 2);
}

}  // namespace
}  // namespace lockstep
