// transformers' get_linear_schedule_with_warmup (optimization.py), by LambdaLR's arithmetic. Steps once an
// optimiser step.

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {
namespace {

class LinearWarmup : public RecursiveSchedule {
 public:
  LinearWarmup(const ScheduleSettings& s, Optimizer& optimizer)
      : RecursiveSchedule(optimizer), warmup_steps_(s.warmup_steps), total_steps_(s.total_steps) {
    start();
  }

  bool per_step() const override { return true; }

 private:
  static double share(int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  }

  double next_lr(size_t group, bool) override {
    const auto factor = last_epoch_ < warmup_steps_
                            ? share(last_epoch_, warmup_steps_)
                            : std::max(0.0, share(total_steps_ - last_epoch_, total_steps_ - warmup_steps_));
    return base_lrs_[group] * factor;
  }

  // LambdaLR's: what a function holds, a group each.
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    auto lambdas = make_list();
    for (size_t group = 0; group < optimizer_.group_count(); ++group) append(lambdas, make_dict());
    return {{"lr_lambdas", lambdas}};
  }

  int64_t warmup_steps_, total_steps_;
};

}  // namespace

std::unique_ptr<Schedule> make_linear_warmup(const ScheduleSettings& s, Optimizer& optimizer) {
  return std::make_unique<LinearWarmup>(s, optimizer);
}

namespace {

// A total_steps of 0 is the run's steps.
std::unique_ptr<Schedule> make_linear_warmup_of_run(const ScheduleSettings& settings, Optimizer& optimizer,
                                                    const RunLength& run) {
  auto s = settings;
  if (s.total_steps == 0) s.total_steps = run.steps;
  if (s.total_steps < run.steps) {
    throw InputError(format("the rate is 0 after {} steps, and the run has {}", s.total_steps, run.steps),
                     "schedule.total_steps", "leave it out: the schedule is then as long as the run");
  }
  return make_linear_warmup(s, optimizer);
}

}  // namespace

LOCKSTEP_SCHEDULE(linear_warmup,
                  .help = "up to the rate in warmup_steps optimiser steps, and down to 0 in total_steps",
                  .reads = {"warmup_steps", "total_steps"}, .make = make_linear_warmup_of_run)

}  // namespace lockstep
