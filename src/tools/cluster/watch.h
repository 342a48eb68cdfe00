#pragma once
// A submitted job, followed to its end through restarts: by its record, its run folder and the scheduler.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "tools/cluster/scheduler.h"
#include "trainer/run_folder/status.h"

namespace lockstep::cluster {

/// What `lockstep job` has written about a job so far.
struct JobRecord {
  std::string job;                 ///< the id that its script knows; empty = it has not started
  bool replaced = false;           ///< a new job, which is `job`, continues the run
  bool started = false;            ///< it is running, or has run
  int restarts = 0;                ///< of the job, or by new jobs
  std::filesystem::path run_file;  ///< receives the path of the run folder
  std::filesystem::path folder;    ///< the run folder, once the script has ended
  std::optional<int> status = {};  ///< the exit status of the script
};

JobRecord parse_record(const std::string& text);

/// The run's status; nothing if it cannot be read now.
std::optional<run_folder::StatusReport> report_on(const std::filesystem::path& folder);

/// How long to wait for the record of a job that the scheduler says is over or does not know, because file
/// systems and controllers may be slow, and for a scheduler that is silent after the script's end.
struct WatchLimits {
  std::chrono::milliseconds over = std::chrono::seconds(10);
  std::chrono::milliseconds unknown = std::chrono::seconds(120);
  std::chrono::milliseconds silent = std::chrono::seconds(60);
};

class JobWatch {
 public:
  /// `job`: the id that the scheduler gave it.
  JobWatch(std::string job, std::filesystem::path file, WatchLimits limits = {})
      : job_(std::move(job)), file_(std::move(file)), limits_(limits) {}

  enum Phase { queued, running, over };
  /// Reads the record.
  Phase update();
  void set_state(const JobState& state);

  Phase phase() const { return phase_; }
  const std::string& job() const { return record_.replaced ? record_.job : job_; }  ///< that runs now
  const std::filesystem::path& folder() const { return folder_; }
  int restarts() const { return record_.restarts; }
  /// What the scheduler said last.
  std::string scheduler_words() const { return state_ ? state_->words : ""; }

  // Once it is over:
  int status() const { return status_; }                   ///< the run's own, or the script's
  const std::string& verdict() const { return verdict_; }  ///< the run's own
  bool is_lost() const { return !record_.status; }         ///< it ended without a record

 private:
  bool is_over() const;
  void end();

  using Clock = std::chrono::steady_clock;
  std::string job_;
  std::filesystem::path file_;
  WatchLimits limits_;
  Phase phase_ = queued;
  std::string text_;  ///< of the record
  JobRecord record_;
  std::optional<JobState> state_;           ///< the scheduler's, since the record has changed
  Clock::time_point since_ = Clock::now();  ///< of the state that is over, or the last answer
  std::filesystem::path folder_;
  std::optional<run_folder::StatusReport> report_;  ///< of the run when its script ended
  int status_ = kFailed;
  std::string verdict_;
};

}  // namespace lockstep::cluster
