// An optimizer that ranks share against the plain one beside it: the same bits, element by element.
#include "lockstep/zero/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>

#include "lockstep/comm/connect.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep {
namespace {

using test::error_of;
using ::testing::HasSubstr;

Team team_over(const std::string& backend) {
  static std::map<std::string, ProcessGroup> groups;
  auto& group = groups[backend];
  if (!group)
    group = comm::connect(test::runtime(), {.backend = backend, .timeout = std::chrono::seconds(30)});
  return {test::runtime().job(), group, at::kCPU};
}

Team team() {
  return team_over("gloo");
}

at::Tensor numbers(const std::vector<int64_t>& shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

// Odd sizes, one that is nearly all, one of no dimension, one of no element, channels_last strides and a
// transposed matrix, and one of complex numbers.
std::vector<at::Tensor> parameters() {
  std::vector<at::Tensor> params = {numbers({257}, 1),
                                    numbers({3, 1001}, 2),
                                    numbers({}, 3),
                                    numbers({0, 4}, 4),
                                    numbers({7, 5, 3, 3}, 5).contiguous(at::MemoryFormat::ChannelsLast),
                                    numbers({131, 97}, 6),
                                    numbers({67, 33}, 7).t(),
                                    numbers({1}, 8),
                                    at::view_as_complex(numbers({33, 2}, 9))};
  for (auto& param : params) param.requires_grad_(true);
  return params;
}

// The same on every rank, and now and then none.
void put_gradients(std::vector<at::Tensor>& params, int step) {
  for (size_t i = 0; i < params.size(); ++i) {
    auto& param = params[i];
    if (!param.requires_grad() || (static_cast<size_t>(step) + i) % 5 == 4) {
      param.mutable_grad() = at::Tensor();
      continue;
    }
    const auto seed = 1000 * static_cast<uint64_t>(step + 1) + i;
    auto grad = numbers(param.sizes().vec(), seed) * std::pow(10, step % 4 - 2);
    if (param.is_complex()) grad = at::complex(grad, grad.roll(1));
    // the third has another layout than its parameter, as a program's own gradient may
    param.mutable_grad() = step == 2 ? grad.contiguous() : at::empty_like(param).copy_(grad);
  }
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
         at::equal(a.detach().contiguous().view(at::kInt), b.detach().contiguous().view(at::kInt));
}

void expect_same(const Tree& ours, const Tree& plain, const std::string& where) {
  if (plain.isTensor()) {
    ASSERT_TRUE(ours.isTensor()) << where;
    EXPECT_TRUE(same_bits(ours.toTensor(), plain.toTensor())) << where;
  } else if (plain.isGenericDict()) {
    const auto left = items(ours), right = items(plain);
    ASSERT_EQ(left.size(), right.size()) << where;
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(left[i].first, right[i].first) << where;
      expect_same(left[i].second, right[i].second, where + "." + c10::str(right[i].first));
    }
  } else if (plain.isList() || plain.isTuple()) {
    const auto left = elements(ours), right = elements(plain);
    ASSERT_EQ(left.size(), right.size()) << where;
    for (size_t i = 0; i < left.size(); ++i) expect_same(left[i], right[i], where);
  } else {
    EXPECT_EQ(ours, plain) << where;
  }
}

// Two trainings side by side.
struct Pair {
  using MakeOne = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;
  Pair(const MakeOne& make_plain, const MakeOne& make_ours)
      : plain_params(parameters()),
        params(parameters()),
        plain(make_plain(plain_params)),
        ours(make_ours(params)) {}

  void step(int number, double clip = 0) {
    put_gradients(plain_params, number);
    put_gradients(params, number);
    for (auto* of : {&plain_params, &params})
      if (clip > 0) clip_grad_norm_(*of, clip);
    plain->step();
    ours->step();
  }
  void expect_alike(const std::string& what) const {
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_TRUE(same_bits(params[i], plain_params[i])) << what << " " << i;
    const auto whole = ours->state_dict();
    if (test::runtime().job().rank == 0) expect_same(whole, plain->state_dict(), what);
  }

  std::vector<at::Tensor> plain_params, params;
  std::unique_ptr<Optimizer> plain, ours;
};

Pair pair_of(const OptimSettings& settings, const Team& over) {
  return Pair([&](auto params) { return make_optimizer(settings, params); },
              [&](auto params) {
                return make_sharded_optimizer({{params, settings}}, over);
              });
}

const std::map<std::string, OptimSettings> kCases = {
    {"sgd", {.lr = 0.1}},
    {"sgd momentum", {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3}},
    {"nesterov", {.lr = 0.1, .momentum = 0.9, .nesterov = true}},
    {"adam", {.name = "adam", .lr = 1e-2, .weight_decay = 1e-2}},
    {"adamw", {.name = "adamw", .lr = 1e-2, .weight_decay = 1e-1, .eps = 1e-7}}};

TEST(Sharded, EqualsThePlainOptimizerToTheBit) {
  for (const auto* backend : {"gloo", "mpi"}) {
    for (const auto& [name, settings] : kCases) {
      auto pair = pair_of(settings, team_over(backend));
      for (int step = 0; step < 7; ++step) pair.step(step, step % 2 ? 0.5 : 0);
      pair.expect_alike(name + " over " + backend);
    }
  }
}

OptimGroups spared_of(const OptimSettings& settings, const std::vector<at::Tensor>& params) {
  OptimGroups groups{{{}, settings}, {{}, settings}};
  groups[1].options.weight_decay = 0;
  for (size_t i = 0; i < params.size(); ++i) groups[i % 3 == 0].params.push_back(params[i]);
  return groups;
}

TEST(Sharded, EqualsThePlainOptimizerWhereSomeParametersDoNotDecay) {
  const OptimSettings settings{.name = "adamw", .lr = 1e-2, .weight_decay = 0.5};
  Pair pair([&](auto params) { return make_optimizer(spared_of(settings, params)); },
            [&](auto params) { return make_sharded_optimizer(spared_of(settings, params), team()); });
  for (int step = 0; step < 5; ++step) pair.step(step);
  EXPECT_EQ(pair.ours->group_count(), 2u);
  pair.expect_alike("spared");
}

TEST(Sharded, HoldsItsShareOfTheStateAlone) {
  auto pair = pair_of(kCases.at("adam"), team());
  for (int step = 0; step < 5; ++step) pair.step(step);
  double held = 0, whole = 0, said = 0;
  for (const auto& [index, state] : items(pair.ours->held_state()))
    held += static_cast<double>(get(state, "exp_avg").toTensor().storage().nbytes());
  for (const auto& param : pair.params) whole += static_cast<double>(param.nbytes());
  for (size_t i = 0; i < pair.params.size(); ++i) said += static_cast<double>(pair.ours->state_bytes(i));
  EXPECT_NEAR(held, whole / team().world(), 4 * 65);
  EXPECT_NEAR(said, 2 * held, 100);
}

TEST(Sharded, GoesOnFromPlainAndBack) {
  for (const auto& [name, settings] : kCases) {
    auto first = pair_of(settings, team());
    for (int step = 0; step < 3; ++step) first.step(step);
    const auto gathered = first.ours->state_dict();
    const auto plain = snapshot(first.plain->state_dict());
    auto second = pair_of(settings, team());
    for (size_t i = 0; i < second.params.size(); ++i) {
      const torch::NoGradGuard no_grad;
      second.params[i].copy_(first.params[i]);
      second.plain_params[i].copy_(first.params[i]);
    }
    second.ours->load_state_dict(plain);
    // the gathered one is rank 0's
    const bool first_rank = test::runtime().job().rank == 0;
    second.plain->load_state_dict(first_rank ? snapshot(gathered) : plain);
    for (int step = 3; step < 6; ++step) second.step(step);
    second.expect_alike(name);
  }
}

TEST(Sharded, MovesAsASchedulesOptimizer) {
  auto pair = pair_of(kCases.at("sgd momentum"), team());
  const ScheduleSettings one_cycle{.name = "one_cycle", .max_lr = 0.3};
  const auto plain = make_schedule(one_cycle, *pair.plain, 12, 1);
  const auto ours = make_schedule(one_cycle, *pair.ours, 12, 1);
  for (int step = 0; step < 8; ++step) {
    pair.step(step);
    plain->step();
    ours->step();
    EXPECT_EQ(pair.ours->lr(), pair.plain->lr());
    EXPECT_EQ(pair.ours->momentum(0), pair.plain->momentum(0));
  }
  pair.expect_alike("one_cycle");
}

TEST(Sharded, SkipsTheStepThatAScalerSkips) {
  auto pair = pair_of(kCases.at("adam"), team());
  GradScaler plain(at::kCPU, {.init_scale = 4}), ours(at::kCPU, {.init_scale = 4});
  for (int step = 0; step < 5; ++step) {
    for (auto* of : {&pair.plain_params, &pair.params}) {
      put_gradients(*of, step);
      of->back().mutable_grad().reset();  // neither this scaler nor Python's takes complex gradients
      if (step == 3) (*of)[5].mutable_grad()[0][0] = INFINITY;
    }
    EXPECT_EQ(plain.step(*pair.plain), step != 3);
    EXPECT_EQ(ours.step(*pair.ours), step != 3);
    plain.update();
    ours.update();
  }
  pair.expect_alike("scaler");
}

TEST(Sharded, KeepsGroupsWithOptionsOfTheirOwn) {
  const auto groups = [](const std::vector<at::Tensor>& params) {
    return std::vector<ParameterGroup<AdamOptions>>{
        {{params.begin(), params.begin() + 3}, {.lr = 1e-2, .weight_decay = 0.1}},
        {{params.begin() + 3, params.end()}, {.lr = 3e-2, .beta1 = 0.8}},
        {{}, {.lr = 1}}};
  };
  Pair pair([&](auto params) { return std::make_unique<Adam>(groups(params)); },
            [&](auto params) { return sharded<Adam>(groups(params), team()); });
  for (auto* optimizer : {pair.plain.get(), pair.ours.get()}) optimizer->set_lr(2e-2, 1);
  for (int step = 0; step < 5; ++step) pair.step(step);
  pair.expect_alike("groups");
}

TEST(Sharded, TrainsLessThanThereAreRanks) {
  std::vector<at::Tensor> plain_params = {at::ones({}, torch::requires_grad())},
                          params = {plain_params[0].clone()};
  params[0] = params[0].detach().requires_grad_(true);
  const auto plain = make_optimizer(kCases.at("adam"), plain_params);
  const auto ours = sharded<Adam>({{params, {.lr = 1e-2, .weight_decay = 1e-2}}}, team());
  for (int step = 0; step < 3; ++step) {
    for (auto* of : {&plain_params, &params}) (*of)[0].mutable_grad() = at::full({}, 0.5 + step);
    plain->step();
    ours->step();
  }
  EXPECT_TRUE(same_bits(params[0], plain_params[0]));
  const auto whole = ours->state_dict();
  if (team().first()) expect_same(whole, plain->state_dict(), "one element");
}

TEST(Sharded, LeavesFrozenAndTiedParametersAsTheyAre) {
  auto frozen = numbers({500}, 1), trained = numbers({300}, 2);
  trained.requires_grad_(true);
  const auto before = frozen.clone();
  const auto ours = sharded<Sgd>({{{frozen, trained, trained}, {.lr = 1, .momentum = 0.5}}}, team());
  EXPECT_EQ(ours->parameters().size(), 2u);
  trained.mutable_grad() = trained.detach().clone();
  ours->step();
  EXPECT_TRUE(at::equal(frozen, before));
  EXPECT_TRUE(at::equal(trained, at::zeros({300})));
  const auto states = get(ours->state_dict(), "state");
  EXPECT_FALSE(find(states, int64_t{0}).has_value());
}

TEST(Sharded, RefusesAlikeOnAllRanks) {
  const auto params = parameters();
  const auto ours = make_sharded_optimizer({{params, kCases.at("adam")}}, team());
  const auto sgd = make_optimizer(kCases.at("sgd momentum"), params);
  EXPECT_THAT(error_of([&] { ours->load_state_dict(sgd->state_dict()); }), HasSubstr("not Adam's"));
  // a state of one parameter's that only its owner looks into
  auto other = parameters();
  other[1] = at::ones({9}, torch::requires_grad());
  const auto adam = make_optimizer(kCases.at("adam"), other);
  for (auto& param : other) param.mutable_grad() = at::ones_like(param);
  adam->step();
  EXPECT_THAT(
      error_of([&] { ours->load_state_dict(adam->state_dict()); }),
      HasSubstr(
          "\"exp_avg\" of parameter 1 in the checkpoint's optimizer is not a tensor of shape [3, 1001]"));
  EXPECT_THAT(error_of([&] {
                sharded<Adam>({{params, {.lr = -1}}}, team());
              }),
              HasSubstr("Invalid learning rate: -1"));
  const auto scattered = at::ones({8, 8}).slice(1, 0, 8, 2);
  EXPECT_THAT(error_of([&] { sharded<Adam>({{{scattered}, {}}}, team()); }), HasSubstr("shape [8, 4]"));
}

}  // namespace
}  // namespace lockstep
