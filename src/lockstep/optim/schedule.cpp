#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/plugins/tables.h"

namespace lockstep {

namespace {

/// Sets an entry of a parameter group; keep: only where there is none.
void set_extra(Optimizer& optimizer, size_t group, const std::string& name, double value, bool keep = false) {
  for (auto& [key, present] : optimizer.extras(group)) {
    if (key != name) continue;
    if (!keep) present = value;
    return;
  }
  optimizer.extras(group).emplace_back(name, value);
}

double extra(Optimizer& optimizer, size_t group, const std::string& name) {
  for (const auto& [key, value] : optimizer.extras(group))
    if (key == name) return value;
  throw InputError(
      format("the optimizer's state has no \"{}\", which the schedule needs", name), "optimizer.param_groups",
      "resume with the schedule that the checkpoint was trained with, or with schedule.name: none");
}

Tree rates_of(const Optimizer& optimizer) {
  auto rates = make_list();
  for (size_t group = 0; group < optimizer.group_count(); ++group) append(rates, optimizer.lr(group));
  return rates;
}

void check_groups(const Optimizer& optimizer, const std::string& name, size_t values) {
  if (values == optimizer.group_count()) return;
  throw InputError(format("the schedule has {} {}, the optimizer {} parameter group{}", values, name,
                          optimizer.group_count(), optimizer.group_count() == 1 ? "" : "s"),
                   name, "give one for each parameter group; in a checkpoint, the state of the same groups");
}

/// What Python's LRScheduler keeps: every schedule except plateau.
class RecursiveSchedule : public Schedule {
 public:
  RecursiveSchedule(const ScheduleSettings& s, Optimizer& optimizer) : s_(s), optimizer_(optimizer) {}

  /// Sets the rates of the first step; once.
  void start() {
    for (size_t group = 0; group < optimizer_.group_count(); ++group) {
      set_extra(optimizer_, group, "initial_lr", optimizer_.lr(group), /*keep=*/true);
      base_lrs_.push_back(extra(optimizer_, group, "initial_lr"));
    }
    advance(/*initial=*/true);
  }
  void step(std::optional<double>) override { advance(/*initial=*/false); }

  Tree state_dict() const override {
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

  void load_state_dict(const Tree& state) override {
    const auto base_lrs = elements(get(state, "base_lrs"));
    check_groups(optimizer_, "base_lrs", base_lrs.size());
    for (size_t group = 0; group < base_lrs.size(); ++group)
      base_lrs_[group] = as_double(base_lrs[group], "base_lrs");
    last_epoch_ = as_int(get(state, "last_epoch"), "last_epoch");
    step_count_ = as_int(get(state, "_step_count"), "_step_count");
  }

 protected:
  /// A parameter group's next rate from its current one. `initial`: at construction.
  virtual double next_lr(size_t group, bool initial) = 0;
  /// Names and values of a schedule's own parameters.
  virtual std::vector<std::pair<Tree, Tree>> parameters() const = 0;

  const ScheduleSettings s_;
  Optimizer& optimizer_;
  int64_t last_epoch_ = -1;
  std::vector<double> base_lrs_;  // one per group

 private:
  void advance(bool initial) {
    ++step_count_;
    ++last_epoch_;
    for (size_t group = 0; group < optimizer_.group_count(); ++group)
      optimizer_.set_lr(next_lr(group, initial), group);
  }

  int64_t step_count_ = 0;
};

template <class Kind>
std::unique_ptr<Schedule> started(const ScheduleSettings& s, Optimizer& optimizer) {
  auto schedule = std::make_unique<Kind>(s, optimizer);
  schedule->start();
  return schedule;
}

}  // namespace

// StepLR, LinearLR and CosineAnnealingLR: torch/optim/lr_scheduler.py, get_lr(). The order of the operations
// is Python's: it decides the last bit.

namespace {

class StepLR : public RecursiveSchedule {
 public:
  StepLR(const ScheduleSettings& s, Optimizer& optimizer) : RecursiveSchedule(s, optimizer) {
    optim::require(s.step_size > 0, format("step_size is {}; it must be positive", s.step_size),
                   "schedule.step_size", "give 1 epoch or more");
  }

 private:
  double next_lr(size_t group, bool) override {
    if (last_epoch_ == 0 || last_epoch_ % s_.step_size != 0) return optimizer_.lr(group);
    return optimizer_.lr(group) * s_.gamma;
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {{"step_size", s_.step_size}, {"gamma", s_.gamma}};
  }
};

class LinearLR : public RecursiveSchedule {
 public:
  LinearLR(const ScheduleSettings& s, Optimizer& optimizer) : RecursiveSchedule(s, optimizer) {
    optim::require(s_.start_factor > 0 && s_.start_factor <= 1,
                   "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
                   "schedule.start_factor", "give the first rate as a share of optim.lr, for example 0.1");
    optim::require(s_.end_factor >= 0 && s_.end_factor <= 1,
                   "Ending multiplicative factor expected to be between 0 and 1.", "schedule.end_factor",
                   "give the last rate as a share of optim.lr, for example 1");
    optim::require(s_.total_iters > 0, "total_iters must be positive", "schedule.total_iters",
                   "give 1 epoch or more");
  }

 private:
  double next_lr(size_t group, bool initial) override {
    const auto lr = optimizer_.lr(group);
    if (last_epoch_ == 0) return lr * s_.start_factor;
    if (initial || last_epoch_ > s_.total_iters) return lr;
    const auto total = static_cast<double>(s_.total_iters);
    const auto before = static_cast<double>(last_epoch_ - 1);
    return lr * (1.0 + (s_.end_factor - s_.start_factor) /
                           (total * s_.start_factor + before * (s_.end_factor - s_.start_factor)));
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {
        {"start_factor", s_.start_factor}, {"end_factor", s_.end_factor}, {"total_iters", s_.total_iters}};
  }
};

class CosineAnnealingLR : public RecursiveSchedule {
 public:
  CosineAnnealingLR(const ScheduleSettings& s, Optimizer& optimizer) : RecursiveSchedule(s, optimizer) {
    optim::require(s_.T_max > 0, format("T_max is {}; it must be positive", s_.T_max), "schedule.T_max",
                   "give 1 epoch or more; 0 in a config means the run's epochs");
  }

 private:
  double next_lr(size_t group, bool initial) override {
    constexpr auto pi = std::numbers::pi;
    const auto lr = optimizer_.lr(group);
    const auto t_max = static_cast<double>(s_.T_max);
    if (initial) return lr;
    if ((last_epoch_ - 1 - s_.T_max) % (2 * s_.T_max) == 0)
      return lr + (base_lrs_[group] - s_.eta_min) * (1 - std::cos(pi / t_max)) / 2;
    const auto now = static_cast<double>(last_epoch_);
    return (1 + std::cos(pi * now / t_max)) / (1 + std::cos(pi * (now - 1) / t_max)) * (lr - s_.eta_min) +
           s_.eta_min;
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {{"T_max", s_.T_max}, {"eta_min", s_.eta_min}};
  }
};

}  // namespace

LOCKSTEP_SCHEDULE(
    step, .help = "multiplies by gamma every step_size epochs", .reads = {"step_size", "gamma"},
    .make = [](const auto& s, auto& optimizer, const auto&) { return started<StepLR>(s, optimizer); })
LOCKSTEP_SCHEDULE(
    warmup, .help = "goes from start_factor to end_factor times the rate in total_iters epochs",
    .reads = {"start_factor", "end_factor", "total_iters"},
    .make = [](const auto& s, auto& optimizer, const auto&) { return started<LinearLR>(s, optimizer); })
LOCKSTEP_SCHEDULE(
    cosine, .help = "falls to eta_min in T_max epochs", .reads = {"T_max", "eta_min"},
    .make = [](auto s, auto& optimizer, const auto& run) {
      if (s.T_max == 0) s.T_max = run.epochs;
      return started<CosineAnnealingLR>(s, optimizer);
    })

// transformers' get_linear_schedule_with_warmup (optimization.py), by LambdaLR's arithmetic. Per step.

namespace {

class LinearWarmup : public RecursiveSchedule {
 public:
  using RecursiveSchedule::RecursiveSchedule;
  bool per_step() const override { return true; }

 private:
  static double share(int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  }

  double next_lr(size_t group, bool) override {
    const auto factor =
        last_epoch_ < s_.warmup_steps
            ? share(last_epoch_, s_.warmup_steps)
            : std::max(0.0, share(s_.total_steps - last_epoch_, s_.total_steps - s_.warmup_steps));
    return base_lrs_[group] * factor;
  }

  // LambdaLR's: what a function holds, a group each.
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    auto lambdas = make_list();
    for (size_t group = 0; group < optimizer_.group_count(); ++group) append(lambdas, make_dict());
    return {{"lr_lambdas", lambdas}};
  }
};

// A total_steps of 0 is the run's steps.
ScheduleSettings for_steps_of(const RunLength& run, ScheduleSettings s) {
  if (s.total_steps == 0) s.total_steps = run.steps;
  if (s.total_steps >= run.steps) return s;
  throw InputError(format("the schedule ends after {} steps, but the run has {}", s.total_steps, run.steps),
                   "schedule.total_steps", "leave it out: the schedule is then as long as the run");
}

}  // namespace

LOCKSTEP_SCHEDULE(
    linear_warmup, .help = "rises to the rate in warmup_steps optimizer steps, and falls to 0 at total_steps",
    .reads = {"warmup_steps", "total_steps"}, .make = [](const auto& s, auto& optimizer, const auto& run) {
      return started<LinearWarmup>(for_steps_of(run, s), optimizer);
    })

// OneCycleLR: torch/optim/lr_scheduler.py. Steps once an optimizer step.

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
  optim::require(s.total_steps > 0,
                 format("Expected positive integer total_steps, but got {}", s.total_steps),
                 "schedule.total_steps", "give 1 step or more; 0 in a config means the run's steps");
  optim::require(s.pct_start >= 0 && s.pct_start <= 1,
                 format("Expected float between 0 and 1 pct_start, but got {}", s.pct_start),
                 "schedule.pct_start", "give the share of the cycle that rises, for example 0.3");
  optim::require(
      s.anneal_strategy == "cos" || s.anneal_strategy == "linear",
      format("anneal_strategy must be one of 'cos' or 'linear', instead got {}", s.anneal_strategy),
      "schedule.anneal_strategy", "Python's default is cos");
  optim::require(s.max_lr > 0, "one_cycle needs a max_lr above 0", "schedule.max_lr",
                 "set it, for example to ten times optim.lr");
}

class OneCycleLR : public RecursiveSchedule {
 public:
  OneCycleLR(const ScheduleSettings& s, Optimizer& optimizer) : RecursiveSchedule(s, optimizer) {
    check_cycle(s_);
    phases_ = phases_of(s_);
    for (size_t group = 0; group < optimizer_.group_count(); ++group) begin(group);
  }

  bool per_step() const override { return true; }

 private:
  void begin(size_t group) {
    const auto initial_lr = s_.max_lr / s_.div_factor;
    set_extra(optimizer_, group, "initial_lr", initial_lr);
    set_extra(optimizer_, group, "max_lr", s_.max_lr);
    set_extra(optimizer_, group, "min_lr", initial_lr / s_.final_div_factor);
    if (!s_.cycle_momentum) return;
    optimizer_.set_momentum(s_.max_momentum, group);
    set_extra(optimizer_, group, "max_momentum", s_.max_momentum);
    set_extra(optimizer_, group, "base_momentum", s_.base_momentum);
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
                  "schedule.total_steps", "set the run's number of steps, or leave it out in a config");
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

  std::vector<Phase> phases_;
};

}  // namespace

LOCKSTEP_SCHEDULE(
    one_cycle, .help = "rises to max_lr and falls again in total_steps optimizer steps",
    .reads = {"max_lr", "total_steps", "pct_start", "anneal_strategy", "cycle_momentum", "base_momentum",
              "max_momentum", "div_factor", "final_div_factor", "three_phase"},
    .needs = {{"max_lr", "set schedule.max_lr, for example to ten times optim.lr"}},
    .make = [](const auto& s, auto& optimizer, const auto& run) {
      return started<OneCycleLR>(for_steps_of(run, s), optimizer);
    })

// ReduceLROnPlateau: torch/optim/lr_scheduler.py. Steps once an epoch, on the metric.

namespace {

void check_plateau(const ScheduleSettings& s) {
  optim::require(s.factor < 1, "Factor should be < 1.0.", "schedule.factor",
                 "give the factor for the rate, for example 0.1");
  optim::require(s.mode == "min" || s.mode == "max", format("mode {} is unknown!", s.mode), "schedule.mode",
                 "choose min or max");
  optim::require(s.threshold_mode == "rel" || s.threshold_mode == "abs",
                 format("threshold mode {} is unknown!", s.threshold_mode), "schedule.threshold_mode",
                 "choose rel or abs");
}

class ReduceLROnPlateau : public Schedule {
 public:
  ReduceLROnPlateau(const ScheduleSettings& s, Optimizer& optimizer) : s_(s), optimizer_(optimizer) {
    check_plateau(s_);
    best_ = worst();
  }

  bool wants_metric() const override { return true; }

  void step(std::optional<double> metric) override {
    if (!metric)
      throw Error("the plateau schedule needs a metric", "Schedule::step",
                  "pass the epoch's metric, such as the evaluation loss");
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
    for (size_t group = 0; group < optimizer_.group_count(); ++group) append(min_lrs, s_.min_lr);
    return make_dict({{"factor", s_.factor},
                      {"default_min_lr", s_.min_lr},
                      {"min_lrs", min_lrs},
                      {"patience", s_.patience},
                      {"cooldown", s_.cooldown},
                      {"eps", s_.eps},
                      {"last_epoch", last_epoch_},
                      {"_last_lr", rates_of(optimizer_)},
                      {"mode_worse", worst()},
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
  double worst() const {
    constexpr auto infinity = std::numeric_limits<double>::infinity();
    return s_.mode == "min" ? infinity : -infinity;
  }

  bool is_better(double metric) const {
    const auto relative = s_.threshold_mode == "rel";
    if (s_.mode == "min") return metric < (relative ? best_ * (1.0 - s_.threshold) : best_ - s_.threshold);
    return metric > (relative ? best_ * (s_.threshold + 1.0) : best_ + s_.threshold);
  }

  void reduce() {
    for (size_t group = 0; group < optimizer_.group_count(); ++group) {
      const auto reduced = std::max(optimizer_.lr(group) * s_.factor, s_.min_lr);
      if (optimizer_.lr(group) - reduced > s_.eps) optimizer_.set_lr(reduced, group);
    }
  }

  ScheduleSettings s_;
  Optimizer& optimizer_;
  double best_;
  int64_t last_epoch_ = 0, cooldown_counter_ = 0, bad_epochs_ = 0;
};

}  // namespace

LOCKSTEP_SCHEDULE(
    plateau, .help = "multiplies by factor if the evaluation loss has not improved for patience epochs",
    .reads = {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"},
    .make = [](const auto& s, auto& optimizer, const auto&) {
      return std::make_unique<ReduceLROnPlateau>(s, optimizer);
    })

std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs) {
  const auto& row = base::require<ScheduleRow>("schedule", settings.name, "schedule.name");
  return base::made(row.make(settings, optimizer, {total_steps, epochs}), "schedule", settings.name,
                    "schedule.name");
}

namespace {

/// No schedule: the rate stays.
class ConstantSchedule : public Schedule {
 public:
  void step(std::optional<double>) override {}
  Tree state_dict() const override { return make_dict(); }
  void load_state_dict(const Tree&) override {}
};

}  // namespace

LOCKSTEP_SCHEDULE(
    none, .help = "constant rate",
    .make = [](const auto&, auto&, const auto&) { return std::make_unique<ConstantSchedule>(); })

}  // namespace lockstep
