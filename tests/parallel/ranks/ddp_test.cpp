#include "lockstep/parallel/ddp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "lockstep/parallel/comm_hook.h"
#include "parallel/ranks_group.h"

// What a DDP in C++ has besides. Values, buckets, buffers, no_sync() and join() are compared with Python's
// bit by bit in tests/parity.
namespace lockstep {
namespace {

using namespace test;
namespace nn = torch::nn;

struct PairNetImpl : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(4, 3));
  nn::Linear b = register_module("b", nn::Linear(4, 3));
  at::Tensor forward(const at::Tensor& x, bool with_b = true) { return with_b ? a(x) + b(x) : a(x); }
};
TORCH_MODULE(PairNet);

TEST(Ddp, TakesHoldersPointersAndValues) {
  const auto input = batch(2, 4);
  EXPECT_EQ(ddp(PairNet(), group())->forward(input).size(0), 2);
  EXPECT_EQ(ddp(std::make_shared<PairNetImpl>(), group())->forward(input, true).size(0), 2);
  const auto by_value = ddp(PairNetImpl(), group());
  by_value->forward(input).sum().backward();
  EXPECT_TRUE(same_everywhere(by_value->module()->b->weight.grad()));
  const auto sequential = ddp(nn::Sequential(nn::Linear(4, 2), nn::ReLU()), group());
  EXPECT_EQ((*sequential)(input).size(1), 2);
}

struct Answer {
  at::Tensor used;
  std::optional<at::Tensor> unused;
  std::map<std::string, std::vector<at::Tensor>> more;
  int64_t count = 0;
  std::string note;
};

struct AnswerNet : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(4, 3));
  nn::Linear b = register_module("b", nn::Linear(4, 3));
  nn::Linear c = register_module("c", nn::Linear(4, 3));
  nn::Linear never = register_module("never", nn::Linear(4, 3));
  Answer forward(const at::Tensor& x) { return {a(x), b(x), {{"c", {c(x)}}}, 7, "fine"}; }
};

TEST(Ddp, HasWhatProgramsAskOfAModule) {
  const auto model = ddp(nn::BatchNorm1d(2), group());
  model->to(at::kCPU);
  EXPECT_THROW(model->to(at::kMeta), InputError);
  EXPECT_TRUE(model->is_training());
  EXPECT_EQ(model->named_buffers().size(), 3U);
  std::stringstream file;
  torch::save(model, file);
  nn::BatchNorm1d loaded(2);
  model->module()->weight.set_data(torch::full({2}, 7.0));
  torch::load(loaded, file);
  EXPECT_TRUE(loaded->weight.equal(torch::ones({2}))) << "under the module's own names";
  file.seekg(0);
  auto again = model;
  torch::load(again, file);
  EXPECT_TRUE(model->module()->weight.equal(torch::ones({2})));
}

// Without the sink behind every tensor of the struct, the parameters behind the unused outputs would never be
// marked ready and the next forward would throw.
TEST(Ddp, SeesTheTensorsInsideAnOutput) {
  const auto model = ddp(std::make_shared<AnswerNet>(), group(), {.find_unused_parameters = true});
  for (int step = 0; step < 3; ++step) {
    const Answer answer = model->forward(batch(5, 4, step));
    EXPECT_EQ(answer.count, 7);
    EXPECT_EQ(answer.note, "fine");
    auto loss = answer.used.sum();
    if (step == 1) loss = loss + answer.more.at("c")[0].square().sum();
    loss.backward();
    model->check_finalized();
  }
  EXPECT_TRUE(same_everywhere(model->module()->c->weight.grad()));
  EXPECT_FALSE(model->module()->b->weight.grad().defined());
  EXPECT_FALSE(model->module()->never->weight.grad().defined());
}

struct TiedNet : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(4, 4));
  at::Tensor again = register_parameter("again", a->weight);
  at::Tensor forward(const at::Tensor& x) { return torch::matmul(a(x), again); }
};

TEST(Ddp, ListsSharedParametersOnce) {
  const auto model = ddp(std::make_shared<TiedNet>(), group());
  EXPECT_EQ(model->module()->parameters().size(), 3U);
  EXPECT_EQ(model->parameters().size(), 2U);
  model->forward(batch(2, 4)).sum().backward();
  EXPECT_TRUE(same_everywhere(model->module()->a->weight.grad()));
}

TEST(Ddp, IgnoredParametersStayLocal) {
  torch::manual_seed(1 + rank());
  const auto model = ddp(PairNet(), group(), {.ignore = {"b.weight", "b.bias"}});
  model->forward(batch(3, 4)).square().sum().backward();
  EXPECT_TRUE(same_everywhere(model->module()->a->weight.grad()));
  if (world() > 1) {
    EXPECT_FALSE(same_everywhere(model->module()->b->weight));
    EXPECT_FALSE(same_everywhere(model->module()->b->weight.grad()));
  }
}

TEST(Ddp, ZeroGradWorksWithBucketViews) {
  const auto model = ddp(PairNet(), group(), {.gradient_as_bucket_view = true});
  for (const bool set_to_none : {true, false, true}) {
    model->forward(batch(2, 4)).sum().backward();
    model->zero_grad(set_to_none);
    const at::Tensor gradient = model->module()->a->weight.grad();
    EXPECT_EQ(gradient.defined(), !set_to_none);
    if (gradient.defined()) {
      EXPECT_EQ(gradient.abs().sum().item<float>(), 0);
    }
  }
}

// tests/e2e/test_comm.py runs it in its own process, because the CUDA plug-in must be loaded first.
TEST(DdpOnGpus, ParametersOnTwoOfOneRank) {
  if (!std::getenv("LOCKSTEP_TEST_GPU")) GTEST_SKIP() << "needs two GPUs a rank, and a process of its own";
  ASSERT_GE(comm::cuda_device_count(), 2 * runtime().job().local_world);
  const auto first = static_cast<c10::DeviceIndex>(2 * runtime().job().local_rank);
  const at::Device one(at::kCUDA, first), two(at::kCUDA, static_cast<c10::DeviceIndex>(first + 1));
  const auto nccl = comm::connect(runtime(), {.backend = "nccl"}, one, comm::Spread::several);
  struct Split : nn::Module {
    nn::Linear a = register_module("a", nn::Linear(4, 4)), b = register_module("b", nn::Linear(4, 2));
    at::Tensor forward(const at::Tensor& x) { return b(a(x).to(b->weight.device())); }
  };
  auto net = std::make_shared<Split>();
  net->a->to(one);
  net->b->to(two);
  const auto model = ddp(net, nccl);
  model->forward(batch(3, 4).to(one)).sum().backward();
  EXPECT_TRUE(same_everywhere(net->a->weight.grad().cpu()));
  EXPECT_TRUE(same_everywhere(net->b->weight.grad().cpu()));
}

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
  EXPECT_THAT([&] { model->forward(batch(4, 16)).sum().backward(); },
              ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr("hook broke")));
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
