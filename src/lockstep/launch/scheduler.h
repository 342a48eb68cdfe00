#pragma once
// When the scheduler will end this job.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

using Time = std::chrono::system_clock::time_point;

/// The job's end, from the environment or else from squeue or qstat, which get a few seconds to answer;
/// nullopt if neither knows it. Only rank 0 should ask.
std::optional<Time> job_deadline(const Job& job, const Environment& environment);

/// The end for a run that stops `margin` before it. A job that has no more than the margin left would stop
/// before its first step, and a chain of such jobs would never make progress: its end is set so much later
/// that it stops halfway, with a warning.
std::optional<Time> usable_job_end(std::optional<Time> end, std::chrono::milliseconds margin, Time now);

/// "1767225600", as in SLURM_JOB_END_TIME.
std::optional<Time> parse_epoch(const std::string& text);
/// 2026-01-01T00:00:00 of Slurm or Thu Jan  1 00:00:00 2026 of PBS, in this host's time zone; not "Unknown".
std::optional<Time> time_in(const std::string& text);
/// 2026-01-01T00:00:00Z
std::string utc_text(Time time);
/// [[DAYS-]HH:]MM:SS of Slurm and PBS; 0 for any other text.
std::chrono::seconds seconds_in(const std::string& time);
/// The fields ("    key = value") of qstat -f and pbsnodes; a tab continues a long line.
std::map<std::string, std::string> qstat_fields(const std::string& answer);
/// Start plus Resource_List.walltime of `qstat -f` (OpenPBS, PBS Pro, Torque).
std::optional<Time> parse_qstat(const std::string& text);

/// The job's end for a run that stops `margin` before it (usable_job_end). If the scheduler does not
/// answer, a thread asks again after `wait`, then after twice as long each time, because a job without a
/// limit has no end.
class JobEnd {
 public:
  JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
         std::chrono::milliseconds wait = std::chrono::minutes(1));

  /// nullopt until the scheduler has answered.
  std::optional<Time> known() const;

 private:
  void ask();

  const Job job_;
  const Environment environment_;
  const std::chrono::milliseconds margin_;
  mutable std::mutex mutex_;
  std::optional<Time> end_;
  std::condition_variable_any stopped_;
  std::jthread asks_again_;  // uses the rest
};

}  // namespace lockstep::launch
