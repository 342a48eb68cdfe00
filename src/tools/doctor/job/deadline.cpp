// When the batch system ends this job. It is asked by one process a job.

#include "tools/doctor/job/deadline.h"

#include <ctime>

#include "lockstep/base/format.h"
#include "tools/doctor/job/active.h"

namespace lockstep::doctor {
namespace {

constexpr long kShort = 600;              // seconds: hardly a run
constexpr std::chrono::seconds kAsk{15};  // squeue and scontrol take 10 where nobody answers

std::string utc(launch::Time end) {
  const std::time_t when = std::chrono::system_clock::to_time_t(end);
  std::tm parts{};
  ::gmtime_r(&when, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string span(long seconds) {
  if (seconds < 120) return format("{} s", seconds);
  if (seconds < 7200) return format("{} min", seconds / 60);
  return format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

// docs/cluster.md has what each does
std::string signals_of(const std::string& scheduler) {
  if (scheduler == "slurm")
    return "Slurm sends SIGTERM then, and SIGKILL after its KillWait; sbatch --signal=USR1@60 warns";
  if (scheduler == "pbs" || scheduler == "torque")
    return "PBS sends SIGTERM then, and SIGKILL after its kill_delay";
  return "SIGTERM comes then";
}

}  // namespace

Finding judge_deadline(const Job& job, std::optional<launch::Time> end, launch::Time now) {
  if (job.scheduler == "none") return fine("no batch job: nothing ends it");
  if (!end && (job.scheduler == "lsf" || job.scheduler == "flux"))
    return warn(
        format("doctor cannot know when {} job {} ends: it asks Slurm and PBS alone", job.scheduler,
               job.job_id),
        "a run does not leave before it of itself there: set train.max_seconds, or have the batch system "
        "send a signal first (bsub -wt and -wa, flux --signal)");
  if (!end)
    return warn(
        format("nobody tells when {} job {} ends", job.scheduler, job.job_id),
        "is squeue, scontrol or qstat in PATH here? A run leaves early of itself only where it knows");
  const long left = std::chrono::duration_cast<std::chrono::seconds>(*end - now).count();
  const std::string says = format("the job ends {} ({}); {}", left < 0 ? "in the past" : "in " + span(left),
                                  utc(*end), signals_of(job.scheduler));
  if (left >= kShort) return fine(says);
  return warn(says,
              left < 0
                  ? "is this node's clock right? compare: date -u"
                  : "ask for more time (--time, -l walltime=); checkpoint.before_deadline leaves before it");
}

Findings run_deadline(const Bench& bench) {
  Findings findings;
  const Job& job = bench.own.job;
  if (job.rank == 0)
    findings = {judge_deadline(job, launch::job_deadline(job, bench.settings.environment),
                               std::chrono::system_clock::now())};
  bench.talk.round("", kAsk);
  return findings;
}

}  // namespace lockstep::doctor
