#pragma once
// Learning-rate schedules by Python's own recursions: the same doubles as torch.optim.lr_scheduler.

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// Changes the rates of an optimiser; each parameter group starts from its own.
class Schedule {
 public:
  virtual ~Schedule() = default;

  /// Call after every optimiser step if per_step(), otherwise after every epoch. The plateau schedule needs
  /// the metric.
  virtual void step(std::optional<double> metric = std::nullopt) = 0;
  /// True if it steps once per optimiser step, not once per epoch.
  virtual bool per_step() const { return false; }
  /// Does step() need a metric?
  virtual bool wants_metric() const { return false; }

  /// As Python's state_dict. Load the optimiser's state too: the rates live there.
  virtual Tree state_dict() const = 0;
  /// Takes Python's, too.
  virtual void load_state_dict(const Tree& state) = 0;
};

/// The length of the run.
struct RunLength {
  int64_t steps = 0;  ///< of the optimiser
  int64_t epochs = 0;
};

/// A row of the table of schedules.
using ScheduleRow = RowOf<std::unique_ptr<Schedule>(const ScheduleSettings&, Optimizer&, const RunLength&)>;

/// The schedule that a config names; it sets the optimiser's rate for the first step. A T_max of 0 means the
/// run's epochs, a total_steps of 0 its steps.
std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs);

}  // namespace lockstep

/// Adds a schedule, in the file that defines it: LOCKSTEP_SCHEDULE(halving, .help = "...", .make =
/// make_halving)
#define LOCKSTEP_SCHEDULE(NAME, ...)                                                                  \
  LOCKSTEP_ROW(schedule, "schedule", NAME, lockstep::ScheduleRow, sizeof(lockstep::ScheduleSettings), \
               __VA_ARGS__)
