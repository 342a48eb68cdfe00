#include "lockstep/tasks/cart_pole.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/data/table_set.h"

namespace lockstep::tasks {

std::vector<double> advantages_of(const Trail& trail, double gamma, double lambda) {
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

// A pole to be balanced: no data set, and the first task of reinforcement learning that anybody tries.

namespace {

class CartPoleTask : public Task {
 public:
  TaskData data(const TaskConfig& settings, const NodeShare&) override {
    method_ = policy_method(settings.task.options);
    TaskData data;
    data.input_shape = {CartPole::kNumbers};
    data.class_names = {"left", "right"};
    data.train =
        std::make_shared<TableSet>(at::zeros({2, CartPole::kNumbers}), at::zeros({2, Packed::columns}));
    return data;
  }

  std::unique_ptr<Actor> actor(const TaskConfig& settings, const ActingRank& rank) const override {
    return std::make_unique<CartPoleActor>(method_, settings.seed, rank);
  }

  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override {
    const auto outputs = static_cast<int64_t>(data.class_names.size()) + 1;
    return make_model(settings.model, "mlp", data.input_shape, outputs);
  }

  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override {
    return policy_loss(method_, output, target, options.reduction);
  }

  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData&,
                                        const std::string&) const override {
    throw InputError("cartpole acts: it has no samples to tell the classes of", "task.name",
                     "`lockstep eval` plays 100 episodes with a checkpoint");
  }

 private:
  PolicyMethod method_;
};

}  // namespace

LOCKSTEP_TASK(
    cartpole, .help = "no data: a pole to be balanced, by acting; its `options` are in docs/how-to/acting.md",
    .reads = {"options.method", "options.environments", "options.steps", "options.passes", "options.gamma",
              "options.lambda", "options.clip", "options.entropy", "options.value", "options.solved"},
    .make = [] { return std::make_unique<CartPoleTask>(); })

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr int64_t kMost = 1 << 20;  // environments, steps, passes

template <class Number>
Number within(const RowOptions& options, const char* name, Number otherwise, Number least, Number most) {
  const auto value = option(options, name, otherwise);
  if (value >= least && value <= most) return value;
  const auto upper = most == std::numeric_limits<Number>::infinity() ? "" : format(" to {}", most);
  throw InputError(format("task.options.{} is {}, and must be {}{}", name, value, least,
                          upper.empty() ? " or more" : upper),
                   format("task.options.{}", name), "leave it out for the usual value");
}

}  // namespace

PolicyMethod policy_method(const RowOptions& options) {
  PolicyMethod method;
  const auto name = option(options, "method", std::string("ppo"));
  if (name != "ppo" && name != "policy_gradient")
    throw InputError(format("task.options.method is '{}'", name), "task.options.method",
                     "take ppo or policy_gradient");
  method.clips = name == "ppo";
  if (!method.clips) method.passes = 1, method.lambda = 1;
  method.environments = within<int64_t>(options, "environments", method.environments, 1, kMost);
  method.steps = within<int64_t>(options, "steps", method.steps, 1, kMost);
  method.passes = within<int64_t>(options, "passes", method.passes, 1, kMost);
  method.gamma = within(options, "gamma", method.gamma, 0.0, 1.0);
  method.lambda = within(options, "lambda", method.lambda, 0.0, 1.0);
  method.clip = within(options, "clip", method.clip, 0.0, 1.0);
  method.entropy = within(options, "entropy", method.entropy, 0.0, kNoLimit);
  method.value = within(options, "value", method.value, 0.0, kNoLimit);
  method.solved = within(options, "solved", method.solved, 0.0, kNoLimit);
  if (!method.clips && options.contains("clip"))
    throw InputError("task.options.clip is for ppo alone", "task.options.clip",
                     "leave it out, or take task.options.method: ppo");
  return method;
}

at::Tensor policy_loss(const PolicyMethod& method, const at::Tensor& output, const at::Tensor& target,
                       at::Reduction::Reduction reduction) {
  const auto column = [&](Packed::Column number) { return target.select(1, number); };
  const int64_t actions = output.size(1) - 1;
  const auto log_probabilities = at::log_softmax(output.narrow(1, 0, actions), 1);
  const auto taken = column(Packed::action).to(at::kLong).unsqueeze(1);
  const auto log_probability = log_probabilities.gather(1, taken).squeeze(1);
  const auto advantage = column(Packed::advantage);
  auto gain = log_probability * advantage;
  if (method.clips) {
    const auto ratio = (log_probability - column(Packed::log_probability)).exp();
    gain = at::min(ratio * advantage, ratio.clamp(1 - method.clip, 1 + method.clip) * advantage);
  }
  const auto entropy = -(log_probabilities.exp() * log_probabilities).sum(1);
  const auto miss = (output.select(1, actions) - column(Packed::value)).square();
  const auto loss = method.value * miss - gain - method.entropy * entropy;
  return reduction == at::Reduction::Sum ? loss.sum() : loss.mean();
}

namespace {

constexpr double kGravity = 9.8, kMassCart = 1.0, kMassPole = 0.1, kTotalMass = kMassPole + kMassCart;
constexpr double kLength = 0.5;  // half the pole's
constexpr double kPoleMassLength = kMassPole * kLength, kForce = 10.0, kSeconds = 0.02;
constexpr double kMostAngle = 12 * 2 * std::numbers::pi / 360, kMostPosition = 2.4;

}  // namespace

void CartPole::reset(SplitMix64& random) {
  for (auto& number : state_) number = random.uniform(-0.05, 0.05);
  steps_ = 0;
}

// In Gymnasium's order of operations: the last bits depend on it.
CartPole::End CartPole::step(bool right) {
  auto& [x, speed, angle, turning] = state_;
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
  ++steps_;
  return {.fell = x < -kMostPosition || x > kMostPosition || angle < -kMostAngle || angle > kMostAngle,
          .time_up = steps_ >= kMostSteps};
}

void CartPole::observe(float* into) const {
  for (const double number : state_) *into++ = static_cast<float>(number);
}

}  // namespace lockstep::tasks
