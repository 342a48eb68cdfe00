// OneCycleLR: torch/optim/lr_scheduler.py. Steps once an optimiser step.

#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {

namespace {

struct Phase {
  double end_step;
  const char *start_lr, *end_lr, *start_momentum, *end_momentum;
};

std::vector<Phase> phases_of(const ScheduleSettings& s) {
  const auto total = static_cast<double>(s.total_steps);
  const Phase rise{s.pct_start * total - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"};
  if (!s.three_phase) return {rise, {total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"}};
  return {rise,
          {2 * s.pct_start * total - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"},
          {total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"}};
}

double anneal(bool cosine, double start, double end, double part) {
  if (!cosine) return (end - start) * part + start;
  const auto cos_out = std::cos(std::numbers::pi * part) + 1;
  return end + (start - end) / 2.0 * cos_out;
}

void check_cycle(const ScheduleSettings& s) {
  if (s.total_steps <= 0) {
    throw InputError(format("Expected positive integer total_steps, but got {}", s.total_steps),
                     "schedule.total_steps", "give 1 step or more; 0 in a config means the run's steps");
  }
  if (!(s.pct_start >= 0 && s.pct_start <= 1)) {
    throw InputError(format("Expected float between 0 and 1 pct_start, but got {}", s.pct_start),
                     "schedule.pct_start", "give the share of the cycle that rises, 0.3 say");
  }
  if (s.anneal_strategy != "cos" && s.anneal_strategy != "linear") {
    throw InputError(
        format("anneal_strategy must be one of 'cos' or 'linear', instead got {}", s.anneal_strategy),
        "schedule.anneal_strategy", "Python's default is cos");
  }
}

void check_max_lr(const OneCycleGroup& group) {
  if (!(group.max_lr > 0))
    throw InputError("one_cycle needs a max_lr above 0", "schedule.max_lr", "set it, ten times optim.lr say");
}

class OneCycleLR : public RecursiveSchedule {
 public:
  OneCycleLR(const ScheduleSettings& s, Optimizer& optimizer, const std::vector<OneCycleGroup>& groups)
      : RecursiveSchedule(optimizer), s_(s) {
    check_cycle(s_);
    check_groups(optimizer_, "max_lrs", groups.size());
    phases_ = phases_of(s_);
    for (size_t group = 0; group < groups.size(); ++group) begin(group, groups[group]);
    start();
  }

  bool per_step() const override { return true; }

 private:
  void begin(size_t group, const OneCycleGroup& turns) {
    check_max_lr(turns);
    const auto initial_lr = turns.max_lr / s_.div_factor;
    set_extra(optimizer_, group, "initial_lr", initial_lr);
    set_extra(optimizer_, group, "max_lr", turns.max_lr);
    set_extra(optimizer_, group, "min_lr", initial_lr / s_.final_div_factor);
    if (!s_.cycle_momentum) return;
    optimizer_.set_momentum(turns.max_momentum, group);
    set_extra(optimizer_, group, "max_momentum", turns.max_momentum);
    set_extra(optimizer_, group, "base_momentum", turns.base_momentum);
  }

  const Phase& present(double& phase_start) const {
    phase_start = 0;
    for (size_t i = 0; i + 1 < phases_.size(); ++i) {
      if (static_cast<double>(last_epoch_) <= phases_[i].end_step) return phases_[i];
      phase_start = phases_[i].end_step;
    }
    return phases_.back();
  }

  double next_lr(size_t group, bool) override {
    if (last_epoch_ > s_.total_steps) {
      throw Error(format("Tried to step {} times. The specified number of total steps is {}", last_epoch_,
                         s_.total_steps),
                  "schedule.total_steps", "give as many as the run takes, or in a config leave it out");
    }
    double phase_start = 0;
    const auto& phase = present(phase_start);
    if (phase.end_step == phase_start) {  // Python divides by zero here
      throw InputError(format("one_cycle has a phase without steps: pct_start {} of {} steps", s_.pct_start,
                              s_.total_steps),
                       "schedule.pct_start", "train longer, or change pct_start");
    }
    const auto part = (static_cast<double>(last_epoch_) - phase_start) / (phase.end_step - phase_start);
    const auto between = [&](const char* from, const char* to) {
      return anneal(s_.anneal_strategy == "cos", extra(optimizer_, group, from), extra(optimizer_, group, to),
                    part);
    };
    if (s_.cycle_momentum) optimizer_.set_momentum(between(phase.start_momentum, phase.end_momentum), group);
    return between(phase.start_lr, phase.end_lr);
  }

  std::vector<std::pair<Tree, Tree>> parameters() const override {
    auto phases = make_list();
    for (const auto& phase : phases_) {
      append(phases, make_dict({{"end_step", phase.end_step},
                                {"start_lr", phase.start_lr},
                                {"end_lr", phase.end_lr},
                                {"start_momentum", phase.start_momentum},
                                {"end_momentum", phase.end_momentum}}));
    }
    std::vector<std::pair<Tree, Tree>> all = {{"total_steps", s_.total_steps},
                                              {"_schedule_phases", phases},
                                              {"_anneal_func_type", s_.anneal_strategy},
                                              {"cycle_momentum", s_.cycle_momentum}};
    if (s_.cycle_momentum) all.emplace_back("use_beta1", optimizer_.has_betas());
    return all;
  }

  ScheduleSettings s_;
  std::vector<Phase> phases_;
};

}  // namespace

std::unique_ptr<Schedule> make_one_cycle_lr(const ScheduleSettings& s, Optimizer& optimizer) {
  const OneCycleGroup turns{s.max_lr, s.base_momentum, s.max_momentum};
  return make_one_cycle_of_groups(s, optimizer, std::vector(optimizer.group_count(), turns));
}

std::unique_ptr<Schedule> make_one_cycle_of_groups(const ScheduleSettings& s, Optimizer& optimizer,
                                                   const std::vector<OneCycleGroup>& groups) {
  return std::make_unique<OneCycleLR>(s, optimizer, groups);
}

namespace {

// A total_steps of 0 is the run's steps.
std::unique_ptr<Schedule> make_one_cycle_of_run(const ScheduleSettings& settings, Optimizer& optimizer,
                                                const RunLength& run) {
  auto s = settings;
  if (s.total_steps == 0) s.total_steps = run.steps;
  if (s.total_steps < run.steps) {
    throw InputError(format("the cycle has {} steps and the run {}", s.total_steps, run.steps),
                     "schedule.total_steps", "leave it out: the cycle is then as long as the run");
  }
  return make_one_cycle_lr(s, optimizer);
}

}  // namespace

LOCKSTEP_SCHEDULE(one_cycle, .help = "up to max_lr and down again in total_steps optimiser steps",
                  .reads = {"max_lr", "total_steps", "pct_start", "anneal_strategy", "cycle_momentum",
                            "base_momentum", "max_momentum", "div_factor", "final_div_factor", "three_phase"},
                  .needs = {{"max_lr", "set schedule.max_lr, ten times optim.lr say"}},
                  .make = make_one_cycle_of_run)

}  // namespace lockstep
