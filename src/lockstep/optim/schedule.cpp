#include "lockstep/optim/schedule.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/plugins/tables.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {

void set_extra(Optimizer& optimizer, size_t group, const std::string& name, double value, bool keep) {
  for (auto& [key, present] : optimizer.extras(group)) {
    if (key != name) continue;
    if (!keep) present = value;
    return;
  }
  optimizer.extras(group).emplace_back(name, value);
}

double extra(Optimizer& optimizer, size_t group, const std::string& name) {
  for (const auto& [key, value] : optimizer.extras(group)) {
    if (key == name) return value;
  }
  throw InputError(
      format("the optimiser's state has no \"{}\", which the schedule needs", name), "optimizer.param_groups",
      "resume with the schedule that the checkpoint was trained with, or with schedule.name: none");
}

Tree rates_of(const Optimizer& optimizer) {
  auto rates = make_list();
  for (size_t group = 0; group < optimizer.group_count(); ++group) append(rates, optimizer.lr(group));
  return rates;
}

void check_groups(const Optimizer& optimizer, const std::string& name, size_t values) {
  if (values == optimizer.group_count()) return;
  throw InputError(format("the schedule has {} {}, the optimiser {} parameter group{}", values, name,
                          optimizer.group_count(), optimizer.group_count() == 1 ? "" : "s"),
                   name, "give one for each parameter group; in a checkpoint, the state of the same groups");
}

void RecursiveSchedule::start() {
  for (size_t group = 0; group < optimizer_.group_count(); ++group) {
    set_extra(optimizer_, group, "initial_lr", optimizer_.lr(group), /*keep=*/true);
    base_lrs_.push_back(extra(optimizer_, group, "initial_lr"));
  }
  advance(/*initial=*/true);
}

void RecursiveSchedule::step(std::optional<double>) {
  advance(/*initial=*/false);
}

void RecursiveSchedule::advance(bool initial) {
  ++step_count_;
  ++last_epoch_;
  for (size_t group = 0; group < optimizer_.group_count(); ++group) {
    optimizer_.set_lr(next_lr(group, initial), group);
  }
}

Tree RecursiveSchedule::state_dict() const {
  auto base_lrs = make_list();
  for (const auto base_lr : base_lrs_) append(base_lrs, base_lr);
  auto state = make_dict(parameters());
  put(state, "base_lrs", base_lrs);
  put(state, "last_epoch", last_epoch_);
  put(state, "_step_count", step_count_);
  put(state, "_is_initial", false);
  put(state, "_get_lr_called_within_step", false);
  put(state, "_last_lr", rates_of(optimizer_));
  return state;
}

void RecursiveSchedule::load_state_dict(const Tree& state) {
  const auto base_lrs = elements(get(state, "base_lrs"));
  check_groups(optimizer_, "base_lrs", base_lrs.size());
  for (size_t group = 0; group < base_lrs.size(); ++group) {
    base_lrs_[group] = as_double(base_lrs[group], "base_lrs");
  }
  last_epoch_ = as_int(get(state, "last_epoch"), "last_epoch");
  step_count_ = as_int(get(state, "_step_count"), "_step_count");
}

std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs) {
  const auto& row = base::require<ScheduleRow>("schedule", settings.name, "schedule.name");
  return base::made(row.make(settings, optimizer, {total_steps, epochs}), "schedule", settings.name,
                    "schedule.name");
}

namespace {

std::unique_ptr<Schedule> make_constant(const ScheduleSettings&, Optimizer&, const RunLength&) {
  return std::make_unique<ConstantSchedule>();
}

}  // namespace

LOCKSTEP_SCHEDULE(none, .help = "the rate stays", .make = make_constant)

}  // namespace lockstep
