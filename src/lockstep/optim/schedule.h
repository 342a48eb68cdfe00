#pragma once
// Learning-rate schedules with the same recurrences, and so the same values, as torch.optim.lr_scheduler.

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// Changes an optimizer's learning rates; each parameter group starts from its own.
class Schedule {
 public:
  virtual ~Schedule() = default;

  /// Call after every optimizer step if per_step(), else after every epoch. A plateau needs the metric.
  virtual void step(std::optional<double> metric = std::nullopt) = 0;
  /// Whether it steps once per optimizer step, not once per epoch.
  virtual bool per_step() const { return false; }
  /// Whether step() needs a metric.
  virtual bool wants_metric() const { return false; }

  /// The state in Python's format. The optimizer's state contains the rates, so load that too.
  virtual Tree state_dict() const = 0;
  /// Loads a state, also one from Python.
  virtual void load_state_dict(const Tree& state) = 0;
};

/// The length of the run.
struct RunLength {
  int64_t steps = 0;  ///< steps of the optimizer
  int64_t epochs = 0;
};

/// A row of the table of schedules.
using ScheduleRow = RowOf<std::unique_ptr<Schedule>(const ScheduleSettings&, Optimizer&, const RunLength&)>;

/// Creates the schedule that a config names; it sets the optimizer's rate for the first step. A T_max of 0
/// means the run's epochs, a total_steps of 0 its steps.
std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs);

}  // namespace lockstep

/// Adds a schedule, in the file that defines it: LOCKSTEP_SCHEDULE(halving, .help = "...", .make =
/// make_halving)
#define LOCKSTEP_SCHEDULE(NAME, ...)                                                                  \
  LOCKSTEP_ROW(schedule, "schedule", NAME, lockstep::ScheduleRow, sizeof(lockstep::ScheduleSettings), \
               __VA_ARGS__)
