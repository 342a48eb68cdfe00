// ReduceLROnPlateau: torch/optim/lr_scheduler.py. Steps once an epoch, on the metric.

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {

namespace {

void check_plateau(const ScheduleSettings& s) {
  if (!(s.factor < 1))
    throw InputError("Factor should be < 1.0.", "schedule.factor",
                     "give what the rate is multiplied by, 0.1 say");
  if (s.mode != "min" && s.mode != "max")
    throw InputError(format("mode {} is unknown!", s.mode), "schedule.mode", "choose min or max");
  if (s.threshold_mode != "rel" && s.threshold_mode != "abs") {
    throw InputError(format("threshold mode {} is unknown!", s.threshold_mode), "schedule.threshold_mode",
                     "choose rel or abs");
  }
}

class ReduceLROnPlateau : public Schedule {
 public:
  /// Without min_lrs the settings' min_lr is every parameter group's.
  ReduceLROnPlateau(const ScheduleSettings& s, Optimizer& optimizer, std::vector<double> min_lrs = {})
      : s_(s),
        optimizer_(optimizer),
        default_min_lr_(min_lrs.empty() ? Tree(s.min_lr) : Tree()),
        min_lrs_(min_lrs.empty() ? std::vector(optimizer.group_count(), s.min_lr) : std::move(min_lrs)) {
    check_plateau(s_);
    constexpr auto infinity = std::numeric_limits<double>::infinity();
    best_ = s_.mode == "min" ? infinity : -infinity;
  }

  bool wants_metric() const override { return true; }

  void step(std::optional<double> metric) override {
    if (!metric)
      throw Error("the plateau schedule steps on a metric and got none", "Schedule::step",
                  "give it the epoch's metric, the evaluation loss say");
    ++last_epoch_;
    if (is_better(*metric)) {
      best_ = *metric;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (cooldown_counter_ > 0) {
      --cooldown_counter_;
      bad_epochs_ = 0;  // what happens while cooling down doesn't count
    }
    if (bad_epochs_ > s_.patience) {
      reduce();
      cooldown_counter_ = s_.cooldown;
      bad_epochs_ = 0;
    }
  }

  Tree state_dict() const override {
    auto min_lrs = make_list();
    for (const auto min_lr : min_lrs_) append(min_lrs, min_lr);
    return make_dict({{"factor", s_.factor},
                      {"default_min_lr", default_min_lr_},
                      {"min_lrs", min_lrs},
                      {"patience", s_.patience},
                      {"cooldown", s_.cooldown},
                      {"eps", s_.eps},
                      {"last_epoch", last_epoch_},
                      {"_last_lr", rates_of(optimizer_)},
                      {"mode_worse", s_.mode == "min" ? std::numeric_limits<double>::infinity()
                                                      : -std::numeric_limits<double>::infinity()},
                      {"mode", s_.mode},
                      {"threshold", s_.threshold},
                      {"threshold_mode", s_.threshold_mode},
                      {"best", best_},
                      {"cooldown_counter", cooldown_counter_},
                      {"num_bad_epochs", bad_epochs_}});
  }

  void load_state_dict(const Tree& state) override {
    if (const auto min_lrs = find(state, "min_lrs"))
      check_groups(optimizer_, "min_lrs", elements(*min_lrs).size());
    best_ = as_double(get(state, "best"), "best");
    last_epoch_ = as_int(get(state, "last_epoch"), "last_epoch");
    cooldown_counter_ = as_int(get(state, "cooldown_counter"), "cooldown_counter");
    bad_epochs_ = as_int(get(state, "num_bad_epochs"), "num_bad_epochs");
  }

 private:
  bool is_better(double metric) const {
    const auto relative = s_.threshold_mode == "rel";
    if (s_.mode == "min") return metric < (relative ? best_ * (1.0 - s_.threshold) : best_ - s_.threshold);
    return metric > (relative ? best_ * (s_.threshold + 1.0) : best_ + s_.threshold);
  }

  void reduce() {
    for (size_t group = 0; group < min_lrs_.size(); ++group) {
      const auto reduced = std::max(optimizer_.lr(group) * s_.factor, min_lrs_[group]);
      if (optimizer_.lr(group) - reduced > s_.eps) optimizer_.set_lr(reduced, group);
    }
  }

  ScheduleSettings s_;
  Optimizer& optimizer_;
  Tree default_min_lr_;          // None where each group has its own
  std::vector<double> min_lrs_;  // a group each
  double best_;
  int64_t last_epoch_ = 0, cooldown_counter_ = 0, bad_epochs_ = 0;
};

}  // namespace

std::unique_ptr<Schedule> make_plateau(const ScheduleSettings& s, Optimizer& optimizer) {
  return std::make_unique<ReduceLROnPlateau>(s, optimizer);
}

std::unique_ptr<Schedule> make_plateau_of_groups(const ScheduleSettings& s, Optimizer& optimizer,
                                                 const std::vector<double>& min_lrs) {
  check_groups(optimizer, "min_lrs", min_lrs.size());
  return std::make_unique<ReduceLROnPlateau>(s, optimizer, min_lrs);
}

LOCKSTEP_SCHEDULE(
    plateau, .help = "times factor when the evaluation loss has not improved for patience epochs",
    .reads = {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"},
    .make = [](const auto& s, auto& optimizer, const auto&) { return make_plateau(s, optimizer); })

}  // namespace lockstep
