#include "tools/job/scheduler.h"

#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::job {

RunCommand real_commands(std::chrono::milliseconds limit) {
  return [limit](const std::vector<std::string>& words) {
    const char *path = std::getenv("PATH"), *pbs = std::getenv("PBS_EXEC");
    const std::string folders =
        std::string(path ? path : "/usr/bin:/bin") + ":" + (pbs && *pbs ? pbs : "/opt/pbs") + "/bin";
    base::Program program{.argv = words, .settings = {"PATH=" + folders}, .apart = true};
    // a user's formats and filters would change the answers, and a step of our own is not one of the ranks
    program.without = {"SQUEUE_*",     "SACCT_*",         "SCONTROL_*",  "SLURM_NTASKS*", "SLURM_NPROCS",
                       "SLURM_TASKS*", "SLURM_CPUS_PER*", "SLURM_GPUS*", "SLURM_MEM*",    "SLURM_HINT*"};
    program.argv.insert(program.argv.begin(), "env");  // looks the command up on that PATH
    return base::ask(std::move(program), limit);
  };
}

std::unique_ptr<Scheduler> this_jobs_scheduler(Environment& environment, RunCommand run) {
  if (!value(environment, "SLURM_JOB_ID").empty()) return make_slurm(environment, std::move(run));
  if (!value(environment, "PBS_JOBID").empty() && !value(environment, "PBS_NODEFILE").empty())
    return make_pbs(environment, std::move(run));
  throw InputError("this process is not in a job: neither SLURM_JOB_ID nor PBS_NODEFILE is set",
                   "lockstep job", "submit a job script with sbatch or qsub");
}

}  // namespace lockstep::job
