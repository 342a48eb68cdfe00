#pragma once
// Which batch system gave this process its job, and what the job was given.

#include "lockstep/launch/identify.h"
#include "lockstep/launch/launchers.h"

namespace lockstep::launch {

struct SchedulerRow {
  const char* name;
  const char* job_id;  // the variable that is set inside a job
};

/// The batch system around us; nullptr outside a job.
const SchedulerRow* find_scheduler(const Environment& environment);

struct Phantom {
  std::string what;  // empty = none
  std::string hint;
};

/// Whether this process, rank 0 of 1, stands where N ranks were meant to be. `warnings` takes what only
/// smells.
Phantom find_phantom(const Environment& environment, const Launcher* launcher, bool mpi_spoke,
                     const Surroundings& surroundings, std::vector<std::string>& warnings);

/// Whether the launcher's variables, which say "rank 0 of 1", are a profile's or an earlier job's, below an
/// mpirun or srun that started more. A real torchrun says that it is there.
Phantom find_leftover(const Environment& environment, const Launcher& launcher);

}  // namespace lockstep::launch
