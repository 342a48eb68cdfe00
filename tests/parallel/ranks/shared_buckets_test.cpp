// DDP over the mpi backend: buckets lie in the node's shared memory, and give the bits of those that do not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "lockstep/comm/connect.h"
#include "lockstep/parallel/ddp.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using namespace test;
namespace nn = torch::nn;

const ProcessGroup& over_mpi() {
  static const ProcessGroup shared =
      comm::connect(runtime(), {.backend = "mpi", .timeout = std::chrono::seconds(30)});
  return shared;
}

// Bytes of shared memory that the ranks' buckets take here.
size_t shared_bytes() {
  size_t bytes = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/lockstep-") == std::string::npos) continue;
    size_t end = 0;
    const size_t begin = std::stoull(line, &end, 16);
    bytes += std::stoull(line.substr(end + 1), nullptr, 16) - begin;
  }
  return bytes;
}

// 37,829 and 8,155 numbers: odd sizes, which no part of a message fits.
struct OddNetImpl : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(163, 231)), b = register_module("b", nn::Linear(231, 35));
  at::Tensor forward(const at::Tensor& x, bool with_a = true) {
    return b(with_a ? at::tanh(a(x)) : x.repeat({1, 2}).narrow(1, 0, 231));
  }
};
TORCH_MODULE(OddNet);

// As the plain mean, in memory of the rank's own.
CommHook in_own_memory() {
  return [](GradBucket& bucket) {
    return hooks::then(hooks::all_reduce(over_mpi(), bucket.buffer().div(world())),
                       [buffer = bucket.buffer()](at::Tensor sum) { return buffer.copy_(sum); });
  };
}

struct Training {
  DdpOptions options = {};
  at::ScalarType type = at::kFloat;
  bool skips_a = false;  // in every other step
  int steps = 4;
};

at::Tensor flat_parameters(const nn::Module& module) {
  std::vector<at::Tensor> flat;
  for (const auto& parameter : module.parameters()) flat.push_back(parameter.detach().reshape({-1}));
  return at::cat(flat);
}

auto prepared(const Training& how, const CommHook& hook) {
  torch::manual_seed(5);
  OddNet net;
  net->to(how.type);
  auto model = ddp(net, over_mpi(), how.options);
  if (hook) model->register_comm_hook(hook, "own memory");
  return model;
}

template <class Model>
void take_step(Model& model, const Training& how, int step) {
  const bool with_a = !(how.skips_a && step % 2 == 1);
  model.forward(batch(6, 163, step).to(how.type), with_a).square().mean().backward();
  at::NoGradGuard no_grad;
  for (const auto& parameter : model.module()->parameters())
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.05);
  model.zero_grad(/*set_to_none=*/step % 3 == 0);
}

at::Tensor trained(const Training& how, const CommHook& hook = {}) {
  const auto model = prepared(how, hook);
  for (int step = 0; step < how.steps; ++step) take_step(*model, how, step);
  return flat_parameters(*model->module());
}

void expect_same_bits(const Training& how) {
  const at::Tensor shared = trained(how);
  EXPECT_TRUE(same_everywhere(shared.to(at::kDouble)));
  EXPECT_TRUE(at::equal(shared, trained(how, in_own_memory())));
}

TEST(SharedBuckets, LieInSharedMemory) {
  over_mpi();
  const size_t before = shared_bytes();
  const auto model = prepared({}, {});
  const size_t bytes = 4 * (163 * 231 + 231 + 231 * 35 + 35);
  if (world() > 1) {
    EXPECT_GE(shared_bytes() - before, world() * bytes);
  } else {
    EXPECT_EQ(shared_bytes(), before);
  }
}

TEST(SharedBuckets, HaveTheBitsOfOthersInEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    SCOPED_TRACE(toString(type));
    expect_same_bits({.type = type});
  }
}

TEST(SharedBuckets, HaveTheBitsOfOthersWithEachOption) {
  for (const bool views : {false, true}) {
    SCOPED_TRACE(views);
    expect_same_bits({.options = {.gradient_as_bucket_view = views}});
    expect_same_bits({.options = {.static_graph = true, .gradient_as_bucket_view = views}});
    expect_same_bits(
        {.options = {.find_unused_parameters = true, .gradient_as_bucket_view = views}, .skips_a = true});
    expect_same_bits({.options = {.gradient_as_bucket_view = views, .bucket_cap_mb = 0.05}});
  }
}

TEST(SharedBuckets, TwoModelsAtOnce) {
  const auto first = prepared({}, {}), second = prepared({.type = at::kDouble}, {});
  for (int step = 0; step < 4; ++step) {
    take_step(*first, {}, step);
    take_step(*second, {.type = at::kDouble}, step);
  }
  EXPECT_TRUE(at::equal(flat_parameters(*first->module()), trained({})));
  EXPECT_TRUE(at::equal(flat_parameters(*second->module()), trained({.type = at::kDouble})));
}

// A rank that has run out of batches brings zeros in memory of its own.
TEST(SharedBuckets, UnevenRanksJoin) {
  for (const int least : {3, 0}) {  // batches of rank 0
    const auto joined = [least](const CommHook& hook) {
      const auto model = prepared({}, hook);
      model->join([&] {
        for (int step = 0; step < least + 2 * rank(); ++step) take_step(*model, {}, step);
      });
      return flat_parameters(*model->module());
    };
    const at::Tensor shared = joined({});
    EXPECT_TRUE(same_everywhere(shared));
    EXPECT_TRUE(at::allclose(shared, joined(in_own_memory()), 1e-5, 1e-6));
  }
}

TEST(SharedBuckets, AStepThatWasCutShortIsForgotten) {
  for (const bool static_graph : {false, true}) {
    const Training how{.options = {.static_graph = static_graph}};
    const auto model = prepared(how, {});
    model->forward(batch(6, 163));
    model->reset();
    for (int step = 0; step < how.steps; ++step) take_step(*model, how, step);
    EXPECT_TRUE(at::equal(flat_parameters(*model->module()), trained(how))) << static_graph;
  }
}

}  // namespace
}  // namespace lockstep
