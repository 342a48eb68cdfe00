#pragma once
// When the batch system will end this job.

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

using Time = std::chrono::system_clock::time_point;

/// The job's end, from the environment or else from the scheduler's own command (squeue, scontrol, qstat),
/// which gets a few seconds to answer; nullopt where nobody tells. For rank 0 alone.
std::optional<Time> job_deadline(const Job& job, const Environment& environment);

/// Is there a scheduler that could tell?
bool has_scheduler(const Job& job);

/// For who leaves `margin` before the end: a job that has no more than that left would leave before its first
/// step, and a chain of such jobs would make none. It is warned of, and gets an end so much later that it
/// leaves halfway.
std::optional<Time> end_to_leave_before(std::optional<Time> end, std::chrono::milliseconds margin, Time now);

/// "1767225600", as in SLURM_JOB_END_TIME.
std::optional<Time> parse_epoch(const std::string& text);
/// "2026-01-01T00:00:00" in this host's time zone, as squeue -o %e prints it; not "NONE" or "Unknown".
std::optional<Time> parse_slurm_time(const std::string& text);
/// The EndTime of `scontrol show job`.
std::optional<Time> parse_scontrol(const std::string& text);
/// Start plus Resource_List.walltime of `qstat -f` (OpenPBS, PBS Pro, Torque).
std::optional<Time> parse_qstat(const std::string& text);

}  // namespace lockstep::launch
