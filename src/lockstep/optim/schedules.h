#pragma once
// The schedules themselves, a class each; schedule.h makes them.

#include "lockstep/optim/schedule.h"

namespace lockstep {

/// What Python's LRScheduler keeps: every schedule but the plateau's.
class RecursiveSchedule : public Schedule {
 public:
  explicit RecursiveSchedule(Optimizer& optimizer) : optimizer_(optimizer) {}
  void step(std::optional<double> metric) override;
  Tree state_dict() const override;
  void load_state_dict(const Tree& state) override;

 protected:
  /// The next rate from the present one. `initial`: at construction.
  virtual double next_lr(bool initial) = 0;
  /// Names and values of a schedule's own parameters.
  virtual std::vector<std::pair<Tree, Tree>> parameters() const = 0;
  /// To be called at the end of the constructor.
  void start();

  Optimizer& optimizer_;
  int64_t last_epoch_ = -1;
  double base_lr_ = 0;

 private:
  void advance(bool initial);

  int64_t step_count_ = 0;
};

/// No schedule: the rate stays.
class ConstantSchedule : public Schedule {
 public:
  void step(std::optional<double>) override {}
  Tree state_dict() const override { return make_dict(); }
  void load_state_dict(const Tree&) override {}
};

std::unique_ptr<Schedule> make_step_lr(const ScheduleSettings& settings, Optimizer& optimizer);
std::unique_ptr<Schedule> make_linear_lr(const ScheduleSettings& settings, Optimizer& optimizer);
std::unique_ptr<Schedule> make_cosine_lr(const ScheduleSettings& settings, Optimizer& optimizer);
std::unique_ptr<Schedule> make_one_cycle_lr(const ScheduleSettings& settings, Optimizer& optimizer);
std::unique_ptr<Schedule> make_plateau(const ScheduleSettings& settings, Optimizer& optimizer);

/// Sets an entry of the optimiser's group; keep: only where there is none.
void set_extra(Optimizer& optimizer, const std::string& name, double value, bool keep = false);
double extra(Optimizer& optimizer, const std::string& name);

}  // namespace lockstep
