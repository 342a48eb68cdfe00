#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/own_graph.h"
#include "lockstep/comm/connect.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using namespace test;
namespace nn = torch::nn;
using ::testing::Test;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return describe(error);
  }
  return "";
}

#define EXPECT_SAYS(message, words) \
  EXPECT_NE((message).find(words), std::string::npos) << "the message is: " << (message)

struct TwoLayers : nn::Module {
  explicit TwoLayers(int64_t width)
      : a(register_module("a", nn::Linear(4, width))), b(register_module("b", nn::Linear(width, 2))) {}
  nn::Linear a, b;
  at::Tensor forward(const at::Tensor& x, bool with_b = true) { return with_b ? b(a(x)) : a(x); }
};

struct Graphed : TwoLayers, OwnGraph {
  explicit Graphed(std::string digest) : TwoLayers(5), graph(std::move(digest)) {}
  std::string graph_digest() const override { return graph; }
  std::string graph;
};

// What the last rank, or the first, has otherwise than the others, and how it is said.
TEST(DdpErrors, WhatOneRankHasOtherwiseIsNamedWithTheRank) {
  using Make = std::function<void(bool odd)>;
  const auto frozen = [](bool odd) {
    const auto net = std::make_shared<TwoLayers>(5);
    net->a->bias.set_requires_grad(!odd);
    ddp(net, group());
  };
  const int last = world() - 1;
  const std::tuple<int, Make, std::string> cases[] = {
      {last, [](bool odd) { ddp(std::make_shared<TwoLayers>(odd ? 6 : 5), group()); },
       format("rank {} has parameter a.weight Float [6, 4], rank 0 has parameter a.weight Float [5, 4]",
              last)},
      {last, [](bool odd) { ddp(std::make_shared<Graphed>(odd ? "1f" : "2e"), group()); },
       format("rank {} has the graph 1f, rank 0 has the graph 2e", last)},
      {last, [](bool odd) { ddp(std::make_shared<TwoLayers>(5), group(), {.find_unused_parameters = odd}); },
       "option find_unused_parameters true"},
      {last, frozen, format("rank {} has parameter a.bias Float [5], frozen", last)},
      {0, frozen, "rank 0 has parameter a.bias Float [5], frozen"}};
  for (const auto& [which, make, said] : cases) {
    const auto message = message_of([&, which = which, &make = make] { make(rank() == which); });
    if (world() == 1) {
      EXPECT_EQ(message, "");
    } else {
      EXPECT_SAYS(message, said);
    }
  }
}

TEST(DdpErrors, ImpossibleOptions) {
  EXPECT_THROW(ddp(nn::Linear(2, 2), group(), {.bucket_cap_mb = -1}), InputError);
  EXPECT_THROW(ddp(nn::Linear(2, 2), group(), {.bucket_cap_mb_list = {1, -1}}), InputError);
  EXPECT_THROW(ddp(std::shared_ptr<nn::LinearImpl>(), group()), InputError);
  EXPECT_THROW(ddp(nn::Linear(2, 2), ProcessGroup()), InputError);
}

TEST(DdpErrors, UnusedParametersAreNamed) {
  const auto model = ddp(std::make_shared<TwoLayers>(5), group());
  model->forward(batch(2, 4), /*with_b=*/false).sum().backward();
  const auto message = message_of([&] { model->forward(batch(2, 4)); });
  EXPECT_SAYS(message, "no gradient in the last backward: b.weight, b.bias");
  EXPECT_SAYS(message, format("rank {}", rank()));
  EXPECT_SAYS(message, "find_unused_parameters");
  EXPECT_SAYS(message_of([&] { model->check_finalized(); }), "b.weight");
}

// Of every second rank, as the copies of a shared model are.
TEST(DdpErrors, RanksOfAPartAreNamedAsTheJobDoes) {
  const auto part = comm::split(test::runtime(), {}, at::kCPU, group(), rank() % 2, "every second");
  if (!part) return;
  EXPECT_EQ(comm::rank_in_job(part, part->getRank()), rank());
  const auto model = ddp(std::make_shared<TwoLayers>(5), part);
  model->forward(batch(2, 4), /*with_b=*/false).sum().backward();
  EXPECT_SAYS(message_of([&] { model->forward(batch(2, 4)); }),
              format("DistributedDataParallel, rank {}", rank()));
  const auto other = message_of([&] { ddp(std::make_shared<TwoLayers>(rank() < 2 ? 5 : 6), part); });
  EXPECT_SAYS(other,
              format("rank {} has parameter a.weight Float [6, 4], rank {} has", 2 + rank() % 2, rank() % 2));
}

TEST(DdpErrors, StaticGraphCannotBeginWithoutSync) {
  const auto model = ddp(nn::Linear(4, 2), group(), {.static_graph = true});
  {
    const auto local = model->no_sync();
    EXPECT_SAYS(message_of([&] { model->forward(batch(2, 4)); }), "static graph");
  }
  model->forward(batch(2, 4)).sum().backward();
  model->check_finalized();
}

// The first of two backwards dies half way on every rank; after reset() training goes on.
void fails_and_recovers(const DdpOptions& options) {
  auto net = std::make_shared<TwoLayers>(5);
  const auto model = ddp(net, group(), options);
  bool fail = true;
  net->a->weight.register_hook([&fail](const at::Tensor& gradient) {
    if (fail) throw std::runtime_error("broken on purpose");
    return gradient;
  });
  EXPECT_THROW(model->forward(batch(2, 4)).sum().backward(), std::runtime_error);
  fail = false;
  model->reset();
  model->zero_grad();
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    model->forward(batch(2, 4, step)).square().sum().backward();
    model->check_finalized();
  }
  const at::Tensor reduced = net->a->weight.grad().clone();
  model->zero_grad();
  net->forward(batch(2, 4, 2)).square().sum().backward();
  EXPECT_TRUE(at::allclose(reduced, test::mean(net->a->weight.grad()), 1e-5, 1e-6));
}

TEST(DdpErrors, ResetAfterAnException) {
  for (const auto& options : {DdpOptions{}, DdpOptions{.find_unused_parameters = true},
                              DdpOptions{.static_graph = true}, DdpOptions{.gradient_as_bucket_view = true}})
    fails_and_recovers(options);
}

// Recovers, or names the libtorch that has the option.
TEST(DdpErrors, ResetAfterAnExceptionWithOptionsOfNewLibtorch) {
  const std::pair<DdpOptions, std::string> cases[] = {
      {{.batched_grad_copy = true}, "batched_grad_copy"},
      {{.lazy_bucket_allocation = true}, "lazy_bucket_allocation"}};
  for (const auto& [options, name] : cases) {
    try {
      ddp(nn::Linear(2, 2), group(), options);
    } catch (const InputError& error) {
      EXPECT_SAYS(std::string(error.what()), name + " needs libtorch 2.");
      continue;
    }
    fails_and_recovers(options);
  }
}

// What the step after a forward around the wrapper, or after a second backward, says.
TEST(DdpErrors, AForwardAroundTheWrapperIsToldBeforeTheParametersDiffer) {
  if (world() == 1) GTEST_SKIP() << "one rank differs from nobody";
  const auto model = ddp(std::make_shared<TwoLayers>(5), group());
  Sgd sgd(model->parameters(), {.lr = 0.1});
  model->module()->forward(batch(2, 4)).sum().backward();
  const auto message = message_of([&] { sgd.step(); });
  EXPECT_SAYS(message, "cannot step 'a.weight' and 3 more with gradients of this rank only");
  EXPECT_SAYS(message, "call the model that ddp() returned, not its module()");
  model->zero_grad();
  model->forward(batch(2, 4)).sum().backward();
  sgd.step();
  EXPECT_TRUE(same_everywhere(model->module()->a->weight));
}

TEST(DdpErrors, ASecondBackwardIsToldToo) {
  if (world() == 1) GTEST_SKIP() << "one rank differs from nobody";
  for (const bool static_graph : {false, true}) {
    const auto model = ddp(std::make_shared<TwoLayers>(5), group(), {.static_graph = static_graph});
    Sgd sgd(model->parameters(), {.lr = 0.1});
    model->forward(batch(2, 4)).sum().backward();  // a static graph learns from it
    sgd.step();
    sgd.zero_grad();
    const auto loss = model->forward(batch(2, 4)).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    EXPECT_SAYS(message_of([&] { sgd.step(); }), "'a.weight' and 3 more with gradients of this rank only");
  }
}

std::string warnings_of(const std::function<void()>& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

// libtorch's optimizers do not ask; SGD writes where no version is counted.
TEST(DdpErrors, AnotherOptimizersStepAroundTheWrapperIsToldAfterIt) {
  if (world() == 1) GTEST_SKIP() << "one rank differs from nobody";
  for (const bool by_wrapper : {false, true}) {
    const auto model = ddp(std::make_shared<TwoLayers>(5), group());
    torch::optim::SGD sgd(model->parameters(), 0.1);
    model->module()->forward(batch(2, 4)).sum().backward();
    sgd.step();
    const auto told = warnings_of([&] {
      by_wrapper ? model->zero_grad() : sgd.zero_grad();
      model->forward(batch(2, 4));
    });
    if (rank() > 0) continue;  // rank 0 warns for all
    EXPECT_SAYS(told, "'a.weight' and 3 more changed after a backward that was not exchanged");
  }
}

// Two wrappers of one module, or of one trunk: what one exchanges the other has not expected.
TEST(DdpErrors, AParameterOfTwoWrappersIsNoMistake) {
  const auto net = std::make_shared<TwoLayers>(5);
  const auto first = ddp(net, group()), second = ddp(net, group());
  Sgd sgd(first->parameters(), {.lr = 0.1});
  for (const auto& model : {first, second}) {
    sgd.zero_grad();
    model->forward(batch(2, 4)).sum().backward();
    sgd.step();
  }
}

// A generator learns through a critic whose gradients nobody wants; local gradients that the last backward
// takes along.
TEST(DdpErrors, LocalGradientsThatMoveNothingAreNoMistake) {
  const auto model = ddp(std::make_shared<TwoLayers>(5), group());
  Sgd sgd(model->parameters(), {.lr = 0.1});
  for (const bool set_to_none : {true, false}) {
    model->module()->forward(batch(2, 4)).sum().backward();
    sgd.zero_grad(set_to_none);
    sgd.step();
    model->module()->forward(batch(2, 4)).sum().backward();
    model->zero_grad(set_to_none);
    sgd.step();
  }
  model->zero_grad();
  model->module()->forward(batch(2, 4)).sum().backward();
  model->forward(batch(2, 4, 1)).sum().backward();  // exchanges both
  sgd.step();
  EXPECT_TRUE(same_everywhere(model->module()->a->weight));
  EXPECT_EQ(warnings_of([&] {
              model->zero_grad();
              model->module()->forward(batch(2, 4)).sum().backward();
              model->zero_grad();
              const torch::NoGradGuard no_grad;
              for (auto& parameter : model->parameters()) parameter.clamp_(-0.01, 0.01);
              model->forward(batch(2, 4));
            }),
            "");
  model->zero_grad();
  model->core().before_forward();
  auto first = model->module()->forward(batch(2, 4)), second = model->module()->forward(batch(2, 4, 1));
  first.sum().backward();
  model->core().after_forward({&second});  // the backward that comes is the one that is exchanged
  second.sum().backward();
  sgd.step();
  EXPECT_TRUE(same_everywhere(model->module()->a->weight));
  {
    const auto local = model->no_sync();
    model->module()->forward(batch(2, 4)).sum().backward();
  }
  sgd.step();  // as it was asked for
}

TEST(DdpErrors, JoinCanEndEveryRankAtOnce) {
  const auto model = ddp(nn::Linear(4, 2), group());
  int steps = 0;
  const auto message = message_of([&] {
    model->join(
        [&] {
          for (; steps < 3 + rank(); ++steps) model->forward(batch(2, 4)).sum().backward();
        },
        {.throw_on_early_termination = true});
  });
  if (world() == 1) {
    EXPECT_EQ(message, "");
    return;
  }
  EXPECT_EQ(steps, 3);
  EXPECT_SAYS(message, rank() == 0 ? "this rank has run out of input" : "another rank has run out of input");
}

TEST(DdpErrors, JoinDoesNotSwallowExceptions) {
  const auto model = ddp(nn::Linear(4, 2), group());
  EXPECT_THROW(model->join([] { throw std::out_of_range("mine"); }), std::out_of_range);
  model->join([&] { model->forward(batch(2, 4)).sum().backward(); });
}

#undef EXPECT_SAYS

}  // namespace
}  // namespace lockstep
