#include "lockstep/optim/schedule.h"

#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {

void set_extra(Optimizer& optimizer, const std::string& name, double value, bool keep) {
  for (auto& [key, present] : optimizer.extras()) {
    if (key != name) continue;
    if (!keep) present = value;
    return;
  }
  optimizer.extras().emplace_back(name, value);
}

double extra(Optimizer& optimizer, const std::string& name) {
  for (const auto& [key, value] : optimizer.extras()) {
    if (key == name) return value;
  }
  throw InputError(
      format("the optimiser's state has no \"{}\", which the schedule needs", name), "optimizer.param_groups",
      "resume with the schedule that the checkpoint was trained with, or with schedule.name: none");
}

void RecursiveSchedule::start() {
  set_extra(optimizer_, "initial_lr", optimizer_.lr(), /*keep=*/true);
  base_lr_ = extra(optimizer_, "initial_lr");
  advance(/*initial=*/true);
}

void RecursiveSchedule::step(std::optional<double>) {
  advance(/*initial=*/false);
}

void RecursiveSchedule::advance(bool initial) {
  ++step_count_;
  ++last_epoch_;
  optimizer_.set_lr(next_lr(initial));
}

Tree RecursiveSchedule::state_dict() const {
  auto state = make_dict(parameters());
  put(state, "base_lrs", make_list({base_lr_}));
  put(state, "last_epoch", last_epoch_);
  put(state, "_step_count", step_count_);
  put(state, "_is_initial", false);
  put(state, "_get_lr_called_within_step", false);
  put(state, "_last_lr", make_list({optimizer_.lr()}));
  return state;
}

void RecursiveSchedule::load_state_dict(const Tree& state) {
  const auto base_lrs = elements(get(state, "base_lrs"));
  if (base_lrs.size() != 1) {
    throw InputError(format("the checkpoint's schedule has {} rates; one is supported", base_lrs.size()),
                     "base_lrs", "give the state of a schedule over one parameter group");
  }
  base_lr_ = as_double(base_lrs[0], "base_lrs");
  last_epoch_ = as_int(get(state, "last_epoch"), "last_epoch");
  step_count_ = as_int(get(state, "_step_count"), "_step_count");
}

namespace {

using Maker = std::function<std::unique_ptr<Schedule>(const ScheduleSettings&, Optimizer&)>;

std::unique_ptr<Schedule> make_constant(const ScheduleSettings&, Optimizer&) {
  return std::make_unique<ConstantSchedule>();
}

const std::map<std::string, Maker> kMakers = {
    {"none", make_constant},    {"step", make_step_lr},           {"cosine", make_cosine_lr},
    {"warmup", make_linear_lr}, {"one_cycle", make_one_cycle_lr}, {"plateau", make_plateau},
};

}  // namespace

std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs) {
  const auto maker = kMakers.find(settings.name);
  if (maker == kMakers.end()) {
    throw InputError(format("there is no schedule \"{}\"", settings.name), "schedule.name",
                     "use none, step, cosine, one_cycle, warmup or plateau");
  }
  auto resolved = settings;
  if (resolved.T_max == 0) resolved.T_max = epochs;
  if (resolved.total_steps == 0) resolved.total_steps = total_steps;
  if (settings.name == "one_cycle" && resolved.total_steps < total_steps) {
    throw InputError(format("the cycle has {} steps and the run {}", resolved.total_steps, total_steps),
                     "schedule.total_steps", "leave it out: the cycle is then as long as the run");
  }
  return maker->second(resolved, optimizer);
}

}  // namespace lockstep
