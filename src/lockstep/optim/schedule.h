#pragma once
// Learning-rate schedules by Python's own recursions: the same doubles as torch.optim.lr_scheduler.

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/options/settings.h"

namespace lockstep {

/// Moves the rates of an optimiser, of every parameter group from its own.
class Schedule {
 public:
  virtual ~Schedule() = default;

  /// Call after every optimiser step if per_step(), else after every epoch. The plateau schedule wants the
  /// metric.
  virtual void step(std::optional<double> metric = std::nullopt) = 0;
  /// Does it step once an optimiser step, not once an epoch?
  virtual bool per_step() const { return false; }
  /// Does step() need a metric?
  virtual bool wants_metric() const { return false; }

  /// As Python's state_dict. Load the optimiser's state too: the rates live there.
  virtual Tree state_dict() const = 0;
  /// Takes Python's, too.
  virtual void load_state_dict(const Tree& state) = 0;
};

/// How long the run is that a schedule is made for.
struct RunLength {
  int64_t steps = 0;  ///< of the optimiser
  int64_t epochs = 0;
};

/// A row of the table of schedules.
using ScheduleRow = RowOf<std::unique_ptr<Schedule>(const ScheduleSettings&, Optimizer&, const RunLength&)>;

/// The schedule a config names, at its start: the optimiser's rate is set for the first step. A T_max of 0 is
/// the run's epochs, a total_steps of 0 its steps.
std::unique_ptr<Schedule> make_schedule(const ScheduleSettings& settings, Optimizer& optimizer,
                                        int64_t total_steps, int64_t epochs);

}  // namespace lockstep

/// Adds a schedule, in the file that defines it: LOCKSTEP_SCHEDULE(halving, .help = "...", .make =
/// make_halving)
#define LOCKSTEP_SCHEDULE(NAME, ...)                                                                  \
  LOCKSTEP_ROW(schedule, "schedule", NAME, lockstep::ScheduleRow, sizeof(lockstep::ScheduleSettings), \
               __VA_ARGS__)
