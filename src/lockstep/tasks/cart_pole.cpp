#include "lockstep/tasks/cart_pole.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/data/table_set.h"

namespace lockstep::tasks {
namespace {

constexpr double kGravity = 9.8, kMassCart = 1.0, kMassPole = 0.1, kTotalMass = kMassPole + kMassCart;
constexpr double kLength = 0.5;  // half the pole's
constexpr double kPoleMassLength = kMassPole * kLength, kForce = 10.0, kSeconds = 0.02;
constexpr double kMostAngle = 12 * 2 * std::numbers::pi / 360, kMostPosition = 2.4;

constexpr int64_t kOutputs = 3;                  // left, right, value
constexpr uint64_t kPlayed = uint64_t{1} << 63;  // streams of played episodes, beyond all others

at::Tensor observed(const std::vector<CartPole>& poles) {
  auto seen = at::empty({static_cast<int64_t>(poles.size()), CartPole::kNumbers}, at::kFloat);
  auto* into = seen.mutable_data_ptr<float>();
  for (const auto& pole : poles)
    for (const double number : pole.state) *into++ = static_cast<float>(number);
  return seen;
}

at::Tensor answers(const Policy& policy, const at::Tensor& seen) {
  const auto output = policy(seen);
  if (output.dim() == 2 && output.size(0) == seen.size(0) && output.size(1) == kOutputs)
    return output.contiguous();
  throw InputError(format("the model's output is {} instead of [{}, {}]: two actions and a value",
                          c10::str(output.sizes()), seen.size(0), kOutputs),
                   "model.name", "use mlp, or a model of 4 numbers in and 3 out");
}

double log_sigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

template <class Number>
void read_option(const RowOptions& options, const char* name, Number& value, Number most) {
  constexpr Number kLeast = std::is_integral_v<Number> ? 1 : 0;
  value = option(options, name, value);
  if (value >= kLeast && value <= most) return;
  const bool has_limit = most != std::numeric_limits<Number>::infinity();
  throw InputError(format("task.options.{} is {}, and must be {}{}", name, value, kLeast,
                          has_limit ? format(" to {}", most) : " or more"),
                   format("task.options.{}", name), "omit it to use the default");
}

}  // namespace

void CartPole::reset(SplitMix64& random) {
  for (auto& number : state) number = -0.05 + (0.05 - -0.05) * random.uniform();
  steps = 0;
}

// In Gymnasium's order of operations: the last bits depend on it.
CartPole::End CartPole::step(bool right) {
  auto& [x, speed, angle, turning] = state;
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double push =
      ((right ? kForce : -kForce) + kPoleMassLength * (turning * turning) * sine) / kTotalMass;
  const double turn = (kGravity * sine - cosine * push) /
                      (kLength * (4.0 / 3.0 - kMassPole * (cosine * cosine) / kTotalMass));
  const double pull = push - kPoleMassLength * turn * cosine / kTotalMass;
  x += kSeconds * speed;
  speed += kSeconds * pull;
  angle += kSeconds * turning;
  turning += kSeconds * turn;
  ++steps;
  return {.fell = x < -kMostPosition || x > kMostPosition || angle < -kMostAngle || angle > kMostAngle,
          .time_up = steps >= kMostSteps};
}

PolicyMethod policy_method(const RowOptions& options) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr int64_t kMost = 1 << 20;
  PolicyMethod method;
  const auto name = option(options, "method", std::string("ppo"));
  if (name != "ppo" && name != "policy_gradient")
    throw InputError(format("task.options.method is '{}'", name), "task.options.method",
                     "use ppo or policy_gradient");
  method.clips = name == "ppo";
  if (!method.clips) method.passes = 1, method.lambda = 1;
  read_option(options, "environments", method.environments, kMost);
  read_option(options, "steps", method.steps, kMost);
  read_option(options, "passes", method.passes, kMost);
  read_option(options, "gamma", method.gamma, 1.0);
  read_option(options, "lambda", method.lambda, 1.0);
  read_option(options, "clip", method.clip, 1.0);
  read_option(options, "entropy", method.entropy, kNoLimit);
  read_option(options, "value", method.value, kNoLimit);
  read_option(options, "solved", method.solved, kNoLimit);
  if (!method.clips && options.contains("clip"))
    throw InputError("task.options.clip needs the method ppo", "task.options.clip",
                     "leave it out, or set task.options.method: ppo");
  return method;
}

at::Tensor policy_loss(const PolicyMethod& method, const at::Tensor& output, const at::Tensor& target,
                       at::Reduction::Reduction reduction) {
  const auto column = [&](TargetColumns::Column number) { return target.select(1, number); };
  const int64_t actions = output.size(1) - 1;
  const auto log_probabilities = at::log_softmax(output.narrow(1, 0, actions), 1);
  const auto taken = column(TargetColumns::action).to(at::kLong).unsqueeze(1);
  const auto log_probability = log_probabilities.gather(1, taken).squeeze(1);
  const auto advantage = column(TargetColumns::advantage);
  auto gain = log_probability * advantage;
  if (method.clips) {
    const auto ratio = (log_probability - column(TargetColumns::log_probability)).exp();
    gain = at::min(ratio * advantage, ratio.clamp(1 - method.clip, 1 + method.clip) * advantage);
  }
  const auto entropy = -(log_probabilities.exp() * log_probabilities).sum(1);
  const auto miss = (output.select(1, actions) - column(TargetColumns::value)).square();
  const auto loss = method.value * miss - gain - method.entropy * entropy;
  return reduction == at::Reduction::Sum ? loss.sum() : loss.mean();
}

std::vector<double> advantages_of(const Trajectory& trail, double gamma, double lambda) {
  const auto environments = static_cast<size_t>(trail.environments);
  std::vector<double> advantages(trail.rewards.size());
  for (size_t i = advantages.size(); i-- > 0;) {
    const size_t later = i + environments;
    const bool goes_on = later < advantages.size() && !trail.ended[i];
    advantages[i] = trail.rewards[i] + gamma * trail.next_values[i] - trail.values[i] +
                    (goes_on ? gamma * lambda * advantages[later] : 0);
  }
  return advantages;
}

CartPoleActor::CartPoleActor(const PolicyMethod& method, int64_t seed, const ActorRank& rank)
    : method_(method),
      seed_(static_cast<uint64_t>(seed)),
      rank_(rank),
      poles_(static_cast<size_t>(method.environments)) {
  auto stream = static_cast<uint64_t>(rank.rank * method.environments);
  for (auto& pole : poles_) pole.reset(randoms_.emplace_back(seed_, stream++));
}

Rollout CartPoleActor::act(const Policy& policy) {
  // scaled so that values are around 1
  const double reward = std::max(1 - method_.gamma, 1.0 / CartPole::kMostSteps);
  Rollout acted{.inputs = at::empty({samples(), CartPole::kNumbers}, at::kFloat),
                .targets = at::empty({samples(), TargetColumns::columns}, at::kFloat),
                .episodes = {},
                .steps = samples()};
  Trajectory trail;
  trail.environments = method_.environments;
  std::vector<CartPole> late;     // whose time was up, in their last state
  std::vector<size_t> late_step;  // in the trail
  auto* const targets = acted.targets.mutable_data_ptr<float>();
  auto* target = targets;
  for (int64_t step = 0; step < method_.steps; ++step) {
    auto seen = acted.inputs.narrow(0, step * method_.environments, method_.environments);
    seen.copy_(observed(poles_));
    const auto output = answers(policy, seen);
    const auto* row = output.const_data_ptr<float>();
    for (size_t e = 0; e < poles_.size(); ++e, target += TargetColumns::columns, row += kOutputs) {
      auto& pole = poles_[e];
      const double odds = static_cast<double>(row[1]) - static_cast<double>(row[0]);
      const bool right = randoms_[e].uniform() < 1 / (1 + std::exp(-odds));
      const auto end = pole.step(right);
      target[TargetColumns::action] = right ? 1 : 0;
      target[TargetColumns::log_probability] = static_cast<float>(log_sigmoid(right ? odds : -odds));
      if (end && !end.fell) late.push_back(pole), late_step.push_back(trail.ended.size());
      trail.values.push_back(row[2]);
      trail.rewards.push_back(reward);
      trail.ended.push_back(static_cast<bool>(end));
      if (!end) continue;
      acted.episodes.push_back({step, static_cast<double>(pole.steps)});
      pole.reset(randoms_[e]);
    }
  }
  const auto last = answers(policy, observed(poles_)).select(1, 2);
  trail.next_values.assign(trail.values.begin() + method_.environments, trail.values.end());
  for (int64_t e = 0; e < method_.environments; ++e) trail.next_values.push_back(last[e].item<float>());
  for (size_t i = 0; i < trail.ended.size(); ++i)
    if (trail.ended[i]) trail.next_values[i] = 0;
  if (!late.empty()) {
    const auto values = answers(policy, observed(late)).select(1, 2);
    for (size_t i = 0; i < late.size(); ++i)
      trail.next_values[late_step[i]] = values[static_cast<int64_t>(i)].item<float>();
  }
  const auto advantages = advantages_of(trail, method_.gamma, method_.lambda);
  std::vector<double> sums(3);
  for (const double one : advantages) sums[0] += 1, sums[1] += one, sums[2] += one * one;
  rank_.sum(sums);  // normalizes by the mean and the deviation over all ranks
  const double mean = sums[1] / sums[0];
  const double deviation = std::sqrt(std::max(sums[2] / sums[0] - mean * mean, 0.0));
  for (size_t i = 0; i < advantages.size(); ++i) {
    auto* const sample = targets + i * TargetColumns::columns;
    sample[TargetColumns::value] = static_cast<float>(advantages[i] + trail.values[i]);
    sample[TargetColumns::advantage] = static_cast<float>((advantages[i] - mean) / (deviation + 1e-8));
  }
  return acted;
}

std::vector<at::Tensor> CartPoleActor::state() const {
  auto poles = at::empty({method_.environments, CartPole::kNumbers}, at::kDouble);
  auto counts = at::empty({method_.environments, 2}, at::kLong);
  auto* pole = poles.mutable_data_ptr<double>();
  auto* count = counts.mutable_data_ptr<int64_t>();
  for (size_t e = 0; e < poles_.size(); ++e) {
    pole = std::ranges::copy(poles_[e].state, pole).out;
    *count++ = poles_[e].steps;
    *count++ = static_cast<int64_t>(randoms_[e].state());
  }
  return {poles, counts};
}

void CartPoleActor::restore(const std::vector<at::Tensor>& state) {
  const auto is = [&](size_t i, at::ScalarType type, int64_t columns) {
    return state[i].scalar_type() == type &&
           state[i].sizes() == at::IntArrayRef({method_.environments, columns});
  };
  if (state.size() != 2 || !is(0, at::kDouble, CartPole::kNumbers) || !is(1, at::kLong, 2))
    throw InputError(format("the checkpoint does not have {} cart-poles per rank", method_.environments),
                     "task.options.environments", "resume with the number that it was trained with");
  const auto poles = state[0].contiguous(), counts = state[1].contiguous();
  const auto* pole = poles.const_data_ptr<double>();
  const auto* count = counts.const_data_ptr<int64_t>();
  for (size_t e = 0; e < poles_.size(); ++e, pole += CartPole::kNumbers, count += 2) {
    std::copy_n(pole, CartPole::kNumbers, poles_[e].state.begin());
    poles_[e].steps = count[0];
    randoms_[e] = SplitMix64(static_cast<uint64_t>(count[1]));
  }
}

// Finished episodes stay in the batch: a row's bits may depend on the number of rows.
std::vector<double> CartPoleActor::play(const Policy& policy, int64_t first, int64_t count) const {
  std::vector<CartPole> poles(static_cast<size_t>(count));
  std::vector<bool> over(poles.size());
  for (size_t i = 0; i < poles.size(); ++i) {
    SplitMix64 random(seed_, kPlayed + static_cast<uint64_t>(first) + i);
    poles[i].reset(random);
  }
  for (auto left = count; left > 0;) {
    const auto output = answers(policy, observed(poles));
    const auto* row = output.const_data_ptr<float>();
    for (size_t i = 0; i < poles.size(); ++i, row += kOutputs) {
      if (over[i] || !poles[i].step(row[1] > row[0])) continue;
      over[i] = true;
      --left;
    }
  }
  std::vector<double> rewards;
  for (const auto& pole : poles) rewards.push_back(static_cast<double>(pole.steps));
  return rewards;
}

namespace {

class CartPoleTask : public Task {
 public:
  TaskData data(const TaskConfig& settings, const NodeShare&) override {
    method_ = policy_method(settings.task.options);
    TaskData data;
    data.input_shape = {CartPole::kNumbers};
    data.class_names = {"left", "right"};
    data.train = std::make_shared<TableSet>(at::zeros({2, CartPole::kNumbers}),
                                            at::zeros({2, TargetColumns::columns}));
    return data;
  }

  std::unique_ptr<Actor> actor(const TaskConfig& settings, const ActorRank& rank) const override {
    return std::make_unique<CartPoleActor>(method_, settings.seed, rank);
  }

  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override {
    return make_model(settings.model, "mlp", data.input_shape, kOutputs);
  }

  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override {
    return policy_loss(method_, output, target, options.reduction);
  }

  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData&,
                                        const std::string&) const override {
    throw InputError("cartpole has no samples to predict from", "task.name",
                     "use `lockstep eval`, which runs 100 episodes with a checkpoint");
  }

 private:
  PolicyMethod method_;
};

}  // namespace

LOCKSTEP_TASK(
    cartpole,
    .help = "reinforcement learning: balance a pole; needs no data; `options`: docs/how-to/acting.md",
    .reads = {"options.method", "options.environments", "options.steps", "options.passes", "options.gamma",
              "options.lambda", "options.clip", "options.entropy", "options.value", "options.solved"},
    .make = [] { return std::make_unique<CartPoleTask>(); })

}  // namespace lockstep::tasks
