#pragma once
// The command that starts a job's ranks: srun, or the mpirun or mpiexec of the MPI that is here.

#include <string>
#include <vector>

#include "tools/job/scheduler.h"

namespace lockstep::job {

struct Launcher {
  std::vector<std::string> words;  ///< what starts the ranks of the program that follows
  bool is_srun = false;
};

struct Start {
  const Scheduler& scheduler;
  const Allocation& allocation;
  const Layout& layout;
  bool is_training = false;  ///< the run's folder says how it ended, so exit statuses do not matter
  int relaunches = 0;        ///< how often ranks were lost and started again in this job
  std::string agent = {};    ///< what an MPI without PBS support calls in place of ssh
};

/// Also sets what launcher and ranks find in their environment. InputError where there is no launcher.
Launcher choose_launcher(const Start& start, Environment& environment, const RunCommand& run);

}  // namespace lockstep::job
