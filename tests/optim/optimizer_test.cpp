#include "lockstep/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "refusal.h"

namespace lockstep {
namespace {

using test::error_of;
using ::testing::HasSubstr;

std::vector<at::Tensor> two_params() {
  return {torch::ones({3}, torch::requires_grad()), torch::ones({2, 2}, torch::requires_grad())};
}

TEST(Optimizer, TakesATiedParameterOnce) {
  auto params = two_params();
  params.push_back(params[0]);
  const auto sgd = make_optimizer({.lr = 1, .momentum = 0}, params);
  params[0].mutable_grad() = torch::ones({3});
  sgd->step();
  EXPECT_TRUE(at::equal(params[0], torch::zeros({3})));
  EXPECT_EQ(sgd->parameters().size(), 2u);
}

std::vector<NamedParameter> named_params() {
  const auto params = two_params();
  return {{"dense.weight", params[0]}, {"dense.bias", params[1]}, {"tied.bias", params[0]}};
}

TEST(DecayGroups, SpareParametersByPartsOfTheirNames) {
  const auto groups = decay_groups({.weight_decay = 0.5, .no_decay = {"bias", "Norm"}},
                                   {{"Norm.weight", torch::ones({1})}, named_params()[0], named_params()[1]});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].options.weight_decay, 0.5);
  EXPECT_EQ(groups[0].params.size(), 1u);
  EXPECT_EQ(groups[1].options.weight_decay, 0);
  EXPECT_EQ(groups[1].params.size(), 2u);
}

TEST(DecayGroups, RefuseAPartThatIsInNoName) {
  for (const char* part : {"layernorm", ""})
    EXPECT_THROW(decay_groups({.no_decay = {"bias", part}}, named_params()), InputError) << part;
}

std::unique_ptr<Optimizer> make_lone(const OptimSettings& s, std::vector<at::Tensor> params) {
  return std::make_unique<Sgd>(std::move(params), SgdOptions{.lr = s.lr});
}

LOCKSTEP_OPTIMIZER(lone, .help = "of one group", .reads = {"no_decay"}, .make = make_lone)

TEST(DecayGroups, AreRefusedByAnOptimizerOfOneGroup) {
  const OptimSettings settings{.name = "lone", .no_decay = {"bias"}};
  EXPECT_THAT([&] { make_optimizer(decay_groups(settings, named_params())); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("one group of parameters")));
  EXPECT_NE(make_optimizer(settings, two_params()), nullptr);
}

TEST(Optimizer, ForgetsGradientsThatAreViews) {
  auto params = two_params();
  const auto bucket = torch::ones({7});
  params[0].mutable_grad() = bucket.narrow(0, 0, 3);
  const auto sgd = make_optimizer({.lr = 1}, params);
  sgd->zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(bucket.sum().item<double>(), 4);
  sgd->zero_grad();
  EXPECT_FALSE(params[0].grad().defined());
}

// What libtorch's fused kernels refuse: a layout of its own, and strides of dimensions that have one element.
TEST(Optimizer, FusesOverGradientsOfAnyLayout) {
  for (const char* name : {"sgd", "adam"}) {
    std::vector<at::Tensor> outcomes;
    for (const bool plain : {true, false}) {
      auto param =
          torch::arange(24, torch::kFloat).view({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
      auto thin = torch::ones({4, 1, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
      const auto optimizer = make_optimizer({.name = name, .lr = 0.1}, {param, thin});
      ASSERT_TRUE(optimizer->fuse());
      for (int step = 0; step < 3; ++step) {
        const auto grad = torch::arange(24, torch::kFloat).sin().view({2, 3, 2, 2});
        param.mutable_grad() = plain ? grad.contiguous(at::MemoryFormat::ChannelsLast) : grad;
        thin.mutable_grad() = torch::ones({4, 1, 3, 3}).as_strided({4, 1, 3, 3}, {9, plain ? 1 : 9, 3, 1});
        optimizer->step();
      }
      outcomes.push_back(torch::cat({param.flatten(), thin.flatten()}));
    }
    EXPECT_TRUE(torch::equal(outcomes[0], outcomes[1])) << name;
  }
}

TEST(Optimizer, RefusesImpossibleValues) {
  const auto make = [](OptimSettings settings) { make_optimizer(settings, two_params()); };
  EXPECT_THROW(make({.name = "lion"}), InputError);
  EXPECT_THROW(make({.lr = -1}), InputError);
  EXPECT_THROW(make({.lr = std::nan("")}), InputError);
  EXPECT_THROW(make({.momentum = -0.5}), InputError);
  EXPECT_THROW(make({.momentum = 0, .nesterov = true}), InputError);
  EXPECT_THROW(make({.name = "adam", .betas = {1, 0.9}}), InputError);
  EXPECT_THROW(make({.name = "adamw", .eps = -1}), InputError);
  EXPECT_THROW(make_optimizer({}, {}), InputError);
}

TEST(Optimizer, RefusesTheStateOfAnotherOptimizerOrModel) {
  auto params = two_params();
  for (auto& param : params) param.mutable_grad() = torch::ones_like(param);
  const auto sgd = make_optimizer({.name = "sgd"}, params);
  const auto adam = make_optimizer({.name = "adam"}, params);
  const auto adamw = make_optimizer({.name = "adamw"}, params);
  sgd->step();
  EXPECT_THROW(adam->load_state_dict(sgd->state_dict()), InputError);
  EXPECT_THROW(sgd->load_state_dict(adam->state_dict()), InputError);
  EXPECT_THROW(adam->load_state_dict(adamw->state_dict()), InputError);
  const auto smaller = make_optimizer({}, {params[0]});
  EXPECT_THROW(smaller->load_state_dict(sgd->state_dict()), InputError);
  const auto swapped = make_optimizer({}, {params[1], params[0]});
  EXPECT_THROW(swapped->load_state_dict(sgd->state_dict()), InputError);
  EXPECT_THROW(sgd->load_state_dict(make_dict()), InputError);
}

TEST(ParameterGroups, HaveOptionsOfTheirOwn) {
  auto params = two_params();
  for (auto& param : params) param.mutable_grad() = torch::ones_like(param);
  Sgd sgd({{{params[0]}, {.lr = 0.5}}, {{params[1]}, {.lr = 0.25, .weight_decay = 1}}});
  sgd.step();
  EXPECT_TRUE(at::equal(params[0], at::full({3}, 0.5)));
  EXPECT_TRUE(at::equal(params[1], at::full({2, 2}, 0.5)));
  EXPECT_EQ(sgd.group_count(), 2u);
  EXPECT_EQ(sgd.parameters().size(), 2u);
  sgd.set_lr(1, 1);
  EXPECT_EQ(sgd.lr(), 0.5);
  EXPECT_EQ(sgd.lr(1), 1);
  sgd.set_lr(2);
  EXPECT_EQ(sgd.lr(0) + sgd.lr(1), 4);
}

const std::vector<at::Tensor> kNone;

TEST(ParameterGroups, ShareNoParameter) {
  const auto params = two_params();
  EXPECT_THAT(error_of([&] {
                Sgd({{params, {.lr = 1}}, {{params[1]}, {.lr = 2}}});
              }),
              HasSubstr("more than one parameter group: one of shape [2, 2] in 0 and 1"));
  EXPECT_EQ(error_of([&] { Adam({{{params[0], params[0]}, {}}, {{params[1]}, {}}}); }), "");
  EXPECT_EQ(error_of([&] { Adam({{params, {}}, {kNone, {}}}); }), "");
  EXPECT_THAT(error_of([&] { Adam({{kNone, {}}, {kNone, {}}}); }), HasSubstr("no parameters"));
}

TEST(ParameterGroups, TakeNoStateOfOtherGroups) {
  const auto params = two_params();
  const Sgd together(params, {});
  Sgd apart({{{params[0]}, {}}, {{params[1]}, {}}});
  EXPECT_THAT(error_of([&] { apart.load_state_dict(together.state_dict()); }),
              HasSubstr("the checkpoint's optimizer has 1 parameter group, but this one has 2"));
  const Sgd uneven({{params, {}}, {kNone, {}}});
  EXPECT_THAT(
      error_of([&] { apart.load_state_dict(uneven.state_dict()); }),
      HasSubstr("the checkpoint's optimizer has 2 parameters in parameter group 0, this model's has 1"));
}

TEST(ParameterGroups, AreWhatASchedulesStateIsFor) {
  const auto params = two_params();
  Sgd together(params, {}), apart({{{params[0]}, {}}, {{params[1]}, {}}});
  for (const char* name : {"step", "plateau"}) {
    const auto one = make_schedule({.name = name}, together, 9, 9);
    const auto two = make_schedule({.name = name}, apart, 9, 9);
    EXPECT_THAT(error_of([&] { two->load_state_dict(one->state_dict()); }),
                HasSubstr("lrs, the optimizer 2 parameter groups"))
        << name;
  }
}

// How a gradient lies in memory, and its sign, may be said beside its numbers.
std::vector<at::Tensor> gradients_in_all_layouts() {
  const auto plain = torch::randn({3, 4, 5, 7});
  return {plain,
          plain.contiguous(at::MemoryFormat::ChannelsLast),
          plain.transpose(1, 2).contiguous().transpose(1, 2),
          torch::_neg_view(plain),
          torch::randn({4, 5, 7}).expand({3, 4, 5, 7}),
          torch::randn({3, 4, 5, 9}).narrow(3, 1, 7)};
}

TEST(Sgd, HasTheBitsOfLibtorchsInEachLayout) {
  torch::manual_seed(7);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const auto& gradient : gradients_in_all_layouts()) {
      const auto start = torch::randn({3, 4, 5, 7}).contiguous(format);
      auto ours = start.clone().requires_grad_(), theirs = start.clone().requires_grad_();
      Sgd sgd({ours}, {.lr = 0.013, .momentum = 0.9, .weight_decay = 0.01});
      torch::optim::SGD peer({theirs}, torch::optim::SGDOptions(0.013).momentum(0.9).weight_decay(0.01));
      for (int step = 0; step < 3; ++step) {
        ours.mutable_grad() = gradient;
        sgd.step();
        theirs.mutable_grad() = gradient.clone();  // libtorch's adds the decay to it
        peer.step();
      }
      EXPECT_TRUE(ours.equal(theirs));
    }
}

TEST(AdamW, DecaysAsPythonsDoesUnlessItIsToldOtherwise) {
  for (const double decay : {0.01, 0.2}) {
    const auto params = two_params(), same = two_params();
    AdamW adamw(params,
                decay == 0.01 ? AdamWOptions{.lr = 0.1} : AdamWOptions{.lr = 0.1, .weight_decay = decay});
    Adam adam(same, {.lr = 0.1, .weight_decay = decay, .decoupled_weight_decay = true});
    params[0].mutable_grad() = same[0].mutable_grad() = torch::ones({3});
    adamw.step();
    adam.step();
    EXPECT_TRUE(at::equal(params[0], same[0]));
    EXPECT_FALSE(at::equal(params[0], torch::ones({3}))) << "it has stepped";
  }
}

TEST(Sgd, IsSeenByAGraphThatNeedsTheOldValues) {
  auto weight = torch::ones({3}).requires_grad_();
  Sgd sgd({weight}, {.lr = 0.1});
  weight.mutable_grad() = torch::ones({3});
  auto loss = (weight * weight).sum();
  sgd.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Schedule, RefusesImpossibleValues) {
  const auto sgd = make_optimizer({}, two_params());
  const auto make = [&](const ScheduleSettings& settings) { make_schedule(settings, *sgd, 100, 5); };
  EXPECT_THROW(make({.name = "sawtooth"}), InputError);
  EXPECT_THROW(make({.name = "step", .step_size = 0}), InputError);
  EXPECT_THROW(make({.name = "cosine", .T_max = -1}), InputError);
  EXPECT_THROW(make({.name = "one_cycle"}), InputError);
  EXPECT_THROW(make({.name = "one_cycle", .max_lr = 1, .pct_start = 2}), InputError);
  EXPECT_THROW(make({.name = "one_cycle", .max_lr = 1, .anneal_strategy = "sine"}), InputError);
  EXPECT_THROW(make({.name = "warmup", .start_factor = 0}), InputError);
  EXPECT_THROW(make({.name = "plateau", .factor = 1}), InputError);
  EXPECT_THROW(make({.name = "plateau", .mode = "least"}), InputError);
}

TEST(Schedule, SaysWhenItSteps) {
  const auto sgd = make_optimizer({}, two_params());
  EXPECT_TRUE(make_schedule({.name = "one_cycle", .max_lr = 1}, *sgd, 100, 5)->per_step());
  EXPECT_FALSE(make_schedule({.name = "warmup"}, *sgd, 100, 5)->per_step());
  EXPECT_TRUE(make_schedule({.name = "plateau"}, *sgd, 100, 5)->wants_metric());
  EXPECT_THROW(make_schedule({.name = "plateau"}, *sgd, 100, 5)->step(), Error);
}

TEST(Schedule, OneCycleEndsWithItsLastStep) {
  const auto sgd = make_optimizer({}, two_params());
  const auto schedule = make_schedule({.name = "one_cycle", .max_lr = 1}, *sgd, 3, 1);
  for (int i = 0; i < 3; ++i) schedule->step();
  EXPECT_THROW(schedule->step(), Error);
}

}  // namespace
}  // namespace lockstep
