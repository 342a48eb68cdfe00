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

class JobWatch {
 public:
  /// `job`: the id that the scheduler gave it. The limits bound the wait for the record of a job that the
  /// scheduler says is over, or does not know: file systems and controllers may be slow. The last one bounds
  /// the wait for a scheduler that does not answer after the script's end.
  JobWatch(std::string job, std::filesystem::path record,
           std::chrono::milliseconds limit_if_over = std::chrono::seconds(10),
           std::chrono::milliseconds limit_if_unknown = std::chrono::seconds(120),
           std::chrono::milliseconds limit_if_silent = std::chrono::seconds(60))
      : job_(std::move(job)),
        record_(std::move(record)),
        limit_if_over_(limit_if_over),
        limit_if_unknown_(limit_if_unknown),
        limit_if_silent_(limit_if_silent),
        current_(job_) {}

  enum Phase { queued, running, over };
  /// Reads the record.
  Phase update();
  void set_state(const JobState& state);

  Phase phase() const { return phase_; }
  const std::string& job() const { return current_; }  ///< the one that runs now
  const std::filesystem::path& folder() const { return folder_; }
  int restarts() const { return restarts_; }
  /// What the scheduler said last.
  std::string scheduler_words() const { return state_ ? state_->words : ""; }

  // Once it is over:
  int status() const { return status_; }                   ///< the run's own, or the script's
  const std::string& verdict() const { return verdict_; }  ///< the run's own
  bool is_lost() const { return is_lost_; }                ///< it ended without a record

 private:
  void forget_state() { state_.reset(), gone_since_.reset(); }
  bool is_over() const;
  void end(const std::optional<int>& script_status);

  using Clock = std::chrono::steady_clock;
  std::string job_;
  std::filesystem::path record_;
  std::chrono::milliseconds limit_if_over_, limit_if_unknown_, limit_if_silent_;
  std::string current_;
  Phase phase_ = queued;
  std::filesystem::path folder_;
  int restarts_ = 0, starts_ = 0, status_ = kFailed;
  std::string verdict_;
  bool is_lost_ = false, script_has_ended_ = false;
  std::optional<JobState> state_;
  std::optional<Clock::time_point> gone_since_;
  Clock::time_point heard_;                         ///< the script's end, or a later answer of the scheduler
  std::optional<run_folder::StatusReport> report_;  ///< of the run when its script ended
};

}  // namespace lockstep::cluster
