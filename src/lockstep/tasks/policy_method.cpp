#include "lockstep/tasks/policy_method.h"

#include <ATen/ATen.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::tasks {
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

}  // namespace lockstep::tasks
