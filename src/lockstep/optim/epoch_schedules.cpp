// StepLR, LinearLR and CosineAnnealingLR: torch/optim/lr_scheduler.py, get_lr(). The order of the operations
// is Python's: it decides the last bit.

#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/schedules.h"

namespace lockstep {

namespace {

class StepLR : public RecursiveSchedule {
 public:
  StepLR(const ScheduleSettings& s, Optimizer& optimizer)
      : RecursiveSchedule(optimizer), step_size_(s.step_size), gamma_(s.gamma) {
    if (step_size_ <= 0)
      throw InputError(format("step_size is {}; it must be positive", step_size_), "schedule.step_size",
                       "give 1 epoch or more");
    start();
  }

 private:
  double next_lr(size_t group, bool) override {
    if (last_epoch_ == 0 || last_epoch_ % step_size_ != 0) return optimizer_.lr(group);
    return optimizer_.lr(group) * gamma_;
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {{"step_size", step_size_}, {"gamma", gamma_}};
  }

  int64_t step_size_;
  double gamma_;
};

class LinearLR : public RecursiveSchedule {
 public:
  LinearLR(const ScheduleSettings& s, Optimizer& optimizer)
      : RecursiveSchedule(optimizer),
        start_factor_(s.start_factor),
        end_factor_(s.end_factor),
        total_iters_(s.total_iters) {
    if (!(start_factor_ > 0 && start_factor_ <= 1)) {
      throw InputError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
                       "schedule.start_factor", "give the first rate as a share of optim.lr, 0.1 say");
    }
    if (!(end_factor_ >= 0 && end_factor_ <= 1)) {
      throw InputError("Ending multiplicative factor expected to be between 0 and 1.", "schedule.end_factor",
                       "give the last rate as a share of optim.lr, 1 say");
    }
    if (total_iters_ <= 0)
      throw InputError("total_iters must be positive", "schedule.total_iters", "give 1 epoch or more");
    start();
  }

 private:
  double next_lr(size_t group, bool initial) override {
    const auto lr = optimizer_.lr(group);
    if (last_epoch_ == 0) return lr * start_factor_;
    if (initial || last_epoch_ > total_iters_) return lr;
    const auto total = static_cast<double>(total_iters_);
    const auto before = static_cast<double>(last_epoch_ - 1);
    return lr * (1.0 + (end_factor_ - start_factor_) /
                           (total * start_factor_ + before * (end_factor_ - start_factor_)));
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {{"start_factor", start_factor_}, {"end_factor", end_factor_}, {"total_iters", total_iters_}};
  }

  double start_factor_, end_factor_;
  int64_t total_iters_;
};

class CosineAnnealingLR : public RecursiveSchedule {
 public:
  CosineAnnealingLR(const ScheduleSettings& s, Optimizer& optimizer)
      : RecursiveSchedule(optimizer), T_max_(s.T_max), eta_min_(s.eta_min) {
    if (T_max_ <= 0)
      throw InputError(format("T_max is {}; it must be positive", T_max_), "schedule.T_max",
                       "give 1 epoch or more; 0 in a config means the run's epochs");
    start();
  }

 private:
  double next_lr(size_t group, bool initial) override {
    constexpr auto pi = std::numbers::pi;
    const auto lr = optimizer_.lr(group);
    const auto t_max = static_cast<double>(T_max_);
    if (initial) return lr;
    if ((last_epoch_ - 1 - T_max_) % (2 * T_max_) == 0) {
      return lr + (base_lrs_[group] - eta_min_) * (1 - std::cos(pi / t_max)) / 2;
    }
    const auto now = static_cast<double>(last_epoch_);
    return (1 + std::cos(pi * now / t_max)) / (1 + std::cos(pi * (now - 1) / t_max)) * (lr - eta_min_) +
           eta_min_;
  }
  std::vector<std::pair<Tree, Tree>> parameters() const override {
    return {{"T_max", T_max_}, {"eta_min", eta_min_}};
  }

  int64_t T_max_;
  double eta_min_;
};

}  // namespace

std::unique_ptr<Schedule> make_step_lr(const ScheduleSettings& s, Optimizer& optimizer) {
  return std::make_unique<StepLR>(s, optimizer);
}

std::unique_ptr<Schedule> make_linear_lr(const ScheduleSettings& s, Optimizer& optimizer) {
  return std::make_unique<LinearLR>(s, optimizer);
}

std::unique_ptr<Schedule> make_cosine_lr(const ScheduleSettings& s, Optimizer& optimizer) {
  return std::make_unique<CosineAnnealingLR>(s, optimizer);
}

namespace {

// A T_max of 0 is the run's epochs.
std::unique_ptr<Schedule> make_cosine_of_run(const ScheduleSettings& settings, Optimizer& optimizer,
                                             const RunLength& run) {
  auto s = settings;
  if (s.T_max == 0) s.T_max = run.epochs;
  return make_cosine_lr(s, optimizer);
}

}  // namespace

LOCKSTEP_SCHEDULE(
    step, .help = "times gamma every step_size epochs", .reads = {"step_size", "gamma"},
    .make = [](const auto& s, auto& optimizer, const auto&) { return make_step_lr(s, optimizer); })
LOCKSTEP_SCHEDULE(
    warmup, .help = "from start_factor to end_factor times the rate in total_iters epochs",
    .reads = {"start_factor", "end_factor", "total_iters"},
    .make = [](const auto& s, auto& optimizer, const auto&) { return make_linear_lr(s, optimizer); })
LOCKSTEP_SCHEDULE(cosine, .help = "down to eta_min in T_max epochs", .reads = {"T_max", "eta_min"},
                  .make = make_cosine_of_run)

}  // namespace lockstep
