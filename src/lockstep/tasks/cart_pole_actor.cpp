#include "lockstep/tasks/cart_pole_actor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/tasks/advantages.h"

namespace lockstep::tasks {
namespace {

constexpr int64_t kOutputs = 3;                  // left, right, value
constexpr uint64_t kPlayed = uint64_t{1} << 63;  // streams of played episodes, beyond all others
constexpr double kLeastReward = 1.0 / CartPole::kMostSteps;

at::Tensor checked(at::Tensor output, int64_t rows) {
  if (output.dim() == 2 && output.size(0) == rows && output.size(1) == kOutputs) return output.contiguous();
  throw InputError(format("the model's output is of {} where acting wants [{}, {}]: two actions and a value",
                          c10::str(output.sizes()), rows, kOutputs),
                   "model.name", "take mlp, or a model of 4 numbers in and 3 out");
}

double log_sigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

at::Tensor observed(const std::vector<CartPole>& poles) {
  auto seen = at::empty({static_cast<int64_t>(poles.size()), CartPole::kNumbers}, at::kFloat);
  auto* row = seen.mutable_data_ptr<float>();
  for (const auto& pole : poles) pole.observe(row), row += CartPole::kNumbers;
  return seen;
}

}  // namespace

struct CartPoleActor::Round {
  Acted acted;
  Trail trail;
  std::vector<CartPole> late;     // whose time was up, as they were last
  std::vector<size_t> late_step;  // in the trail
};

CartPoleActor::CartPoleActor(const PolicyMethod& method, int64_t seed, const ActingRank& rank)
    : method_(method),
      seed_(static_cast<uint64_t>(seed)),
      rank_(rank),
      reward_(std::max(1 - method.gamma, kLeastReward)),
      environments_(static_cast<size_t>(method.environments)) {
  auto stream = static_cast<uint64_t>(rank.rank * method.environments);
  for (auto& [pole, random] : environments_) {
    random = SplitMix64(seed_, stream++);
    pole.reset(random);
  }
}

at::Tensor CartPoleActor::observations() const {
  auto seen = at::empty({method_.environments, CartPole::kNumbers}, at::kFloat);
  auto* row = seen.mutable_data_ptr<float>();
  for (const auto& one : environments_) one.pole.observe(row), row += CartPole::kNumbers;
  return seen;
}

Acted CartPoleActor::act(const Policy& policy) {
  Round round;
  round.trail.environments = method_.environments;
  round.acted.inputs = at::empty({samples(), CartPole::kNumbers}, at::kFloat);
  round.acted.targets = at::empty({samples(), Packed::columns}, at::kFloat);
  for (int64_t step = 0; step < method_.steps; ++step) {
    auto seen = round.acted.inputs.narrow(0, step * method_.environments, method_.environments);
    seen.copy_(observations());
    take_step(round, step, checked(policy(seen), method_.environments));
  }
  value_what_followed(round, policy);
  auto& trail = round.trail;
  auto advantages = advantages_of(trail, method_.gamma, method_.lambda);
  auto* target = round.acted.targets.mutable_data_ptr<float>();
  for (size_t i = 0; i < advantages.size(); ++i)
    target[i * Packed::columns + Packed::value] = static_cast<float>(advantages[i] + trail.values[i]);
  normalise(advantages);
  for (size_t i = 0; i < advantages.size(); ++i)
    target[i * Packed::columns + Packed::advantage] = static_cast<float>(advantages[i]);
  round.acted.steps = samples();
  return std::move(round.acted);
}

// Each environment once, with an action drawn as the model's odds are.
void CartPoleActor::take_step(Round& round, int64_t number, const at::Tensor& output) {
  auto& trail = round.trail;
  auto* target =
      round.acted.targets.mutable_data_ptr<float>() + number * method_.environments * Packed::columns;
  const auto* row = output.const_data_ptr<float>();
  for (auto& [pole, random] : environments_) {
    const double odds = static_cast<double>(row[1]) - static_cast<double>(row[0]);
    const bool right = random.uniform() < 1 / (1 + std::exp(-odds));
    const auto end = pole.step(right);
    target[Packed::action] = right ? 1 : 0;
    target[Packed::log_probability] = static_cast<float>(log_sigmoid(right ? odds : -odds));
    trail.values.push_back(row[2]);
    trail.rewards.push_back(reward_);
    trail.ended.push_back(static_cast<bool>(end));
    if (end) {
      if (!end.fell) round.late.push_back(pole), round.late_step.push_back(trail.ended.size() - 1);
      round.acted.episodes.push_back({number, static_cast<double>(pole.steps())});
      pole.reset(random);
    }
    target += Packed::columns;
    row += kOutputs;
  }
}

void CartPoleActor::value_what_followed(Round& round, const Policy& policy) const {
  auto& trail = round.trail;
  const auto environments = static_cast<size_t>(method_.environments);
  const auto last = checked(policy(observations()), method_.environments);
  trail.next_values.assign(trail.values.begin() + method_.environments, trail.values.end());
  for (size_t e = 0; e < environments; ++e)
    trail.next_values.push_back(last.const_data_ptr<float>()[e * kOutputs + 2]);
  for (size_t i = 0; i < trail.ended.size(); ++i) {
    if (trail.ended[i]) trail.next_values[i] = 0;
  }
  if (round.late.empty()) return;
  const auto late = checked(policy(observed(round.late)), static_cast<int64_t>(round.late.size()));
  for (size_t i = 0; i < round.late.size(); ++i)
    trail.next_values[round.late_step[i]] = late.const_data_ptr<float>()[i * kOutputs + 2];
}

// Over all ranks: what is far above the mean on one is so on each.
void CartPoleActor::normalise(std::vector<double>& advantages) const {
  std::vector<double> sums(3);
  for (const double one : advantages) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  rank_.sum(sums);
  const double mean = sums[1] / sums[0];
  const double deviation = std::sqrt(std::max(sums[2] / sums[0] - mean * mean, 0.0));
  for (auto& one : advantages) one = (one - mean) / (deviation + 1e-8);
}

std::vector<at::Tensor> CartPoleActor::state() const {
  auto poles = at::empty({method_.environments, CartPole::kNumbers}, at::kDouble);
  auto counts = at::empty({method_.environments, 2}, at::kLong);
  auto* pole = poles.mutable_data_ptr<double>();
  auto* count = counts.mutable_data_ptr<int64_t>();
  for (const auto& one : environments_) {
    pole = std::ranges::copy(one.pole.state(), pole).out;
    *count++ = one.pole.steps();
    *count++ = static_cast<int64_t>(one.random.state());
  }
  return {poles, counts};
}

void CartPoleActor::restore(const std::vector<at::Tensor>& state) {
  const auto is = [&](size_t i, at::ScalarType type, int64_t columns) {
    return state[i].scalar_type() == type &&
           state[i].sizes() == at::IntArrayRef({method_.environments, columns});
  };
  if (state.size() != 2 || !is(0, at::kDouble, CartPole::kNumbers) || !is(1, at::kLong, 2))
    throw InputError(format("the checkpoint does not hold {} cart-poles a rank", method_.environments),
                     "task.options.environments", "resume with the number that it was trained with");
  const auto poles = state[0].contiguous(), counts = state[1].contiguous();
  const auto* pole = poles.const_data_ptr<double>();
  const auto* count = counts.const_data_ptr<int64_t>();
  for (auto& one : environments_) {
    CartPole::State numbers;
    std::copy_n(pole, numbers.size(), numbers.begin());
    one.pole.set(numbers, count[0]);
    one.random = SplitMix64(static_cast<uint64_t>(count[1]));
    pole += CartPole::kNumbers, count += 2;
  }
}

// Those that are over stay in the batch: a row's bits may depend on how many there are.
std::vector<double> CartPoleActor::play(const Policy& policy, int64_t first, int64_t count) const {
  std::vector<CartPole> poles(static_cast<size_t>(count));
  std::vector<bool> over(poles.size());
  for (size_t i = 0; i < poles.size(); ++i) {
    SplitMix64 random(seed_, kPlayed + static_cast<uint64_t>(first) + i);
    poles[i].reset(random);
  }
  for (auto left = count; left > 0;) {
    const auto output = checked(policy(observed(poles)), count);
    const auto* row = output.const_data_ptr<float>();
    for (size_t i = 0; i < poles.size(); ++i, row += kOutputs) {
      if (over[i] || !poles[i].step(row[1] > row[0])) continue;
      over[i] = true;
      --left;
    }
  }
  std::vector<double> rewards;
  for (const auto& pole : poles) rewards.push_back(static_cast<double>(pole.steps()));
  return rewards;
}

}  // namespace lockstep::tasks
