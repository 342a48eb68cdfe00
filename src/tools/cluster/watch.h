#pragma once
// One submitted job, watched to its end through requeues: by what its scripts record, by its run's folder,
// and by the scheduler where those are silent.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"
#include "trainer/run_folder/status.h"

namespace lockstep::cluster {

// What lockstep job writes about a job, read while it is being written.

/// Where a submitted job stands, as far as its scripts have said.
struct Recorded {
  std::string job;                 ///< as its script calls it; empty = it has not begun
  bool replaced = false;           ///< another one was submitted in its place: that is `job`
  bool began = false;              ///< it runs, or has run
  bool again = false;              ///< it has asked to be started again, and has not been yet
  int restarts = 0;                ///< how often it was, or another took its place
  std::filesystem::path run_file;  ///< what will name the run's folder, while the script runs
  std::filesystem::path folder;    ///< of the run, once the script has ended
  std::optional<int> status = {};  ///< what the script ended with
};

/// What a record's text says of the job that it begins with, and of those in its place.
Recorded read_record(const std::string& text);

/// The same of a file; one that is not there yet says nothing.
Recorded read_record_file(const std::filesystem::path& path);

/// The run's folder: as the record says it, or its run_file; empty where there is none yet.
std::filesystem::path folder_of(const Recorded& recorded);

struct Standing {
  enum Phase {
    queued,
    running,
    ending,  ///< its script has ended; whether the scheduler starts it again is still to be heard
    again,
    missing,  ///< the scheduler does not know it, and no word of its end has come
    over
  };
  Phase phase = queued;
  std::string job;    // the one that counts now
  std::string words;  // of the scheduler, while it waits, and where it ended without one of its own
  int restarts = 0;
  std::filesystem::path folder;  // of its run, where there is one yet
  int status = 0;                // once it is over: what the job ended with, by its run's own word
  std::string verdict;           // and that word
  bool lost = false;             // it ended without one
};

/// How long a job's own word is waited for.
struct JobPatience {
  /// From the job's end by the scheduler's word: the record comes over a network's file system.
  std::chrono::milliseconds record{std::chrono::seconds(10)};
  /// Where the scheduler does not know it: a controller may be slow, or have been started again.
  std::chrono::milliseconds unknown{std::chrono::seconds(120)};
  /// From the end by the record, of a scheduler that answers nothing.
  std::chrono::milliseconds silent{std::chrono::seconds(60)};
};

class JobWatch {
 public:
  /// `job` as the scheduler named it, `record` as its script writes it.
  JobWatch(std::string job, std::filesystem::path record, JobPatience patience = {})
      : job_(std::move(job)), record_(std::move(record)), patience_(patience) {}

  /// Where it stands now.
  const Standing& look();
  const Standing& standing() const { return now_; }
  /// What the scheduler said of it.
  void hear(const Seen& seen);
  bool over() const { return now_.phase == Standing::over; }
  /// Its script has ended, and the scheduler has said nothing since.
  bool waits_for_word() const { return now_.phase == Standing::ending && !seen_; }

 private:
  void end(const Recorded& recorded);
  void forget_what_was_heard();
  bool has_ended(const Recorded& recorded);
  bool is_given_up();

  using Clock = std::chrono::steady_clock;
  std::string job_;
  std::filesystem::path record_;
  JobPatience patience_;
  std::optional<Seen> seen_;
  Clock::time_point heard_{};
  std::optional<Clock::time_point> gone_since_, ended_since_;
  std::optional<run_folder::StatusReport> last_;  // of the run when its script had ended
  int begins_ = 0;
  Standing now_;
};

/// Asks the scheduler now and then what the jobs do, and tells how long it has been silent.
class SchedulerPoll {
 public:
  explicit SchedulerPoll(Scheduler scheduler) : scheduler_(std::move(scheduler)) {}

  /// Where it is time, asks of those that are not over. What is to be said of it, where there is something.
  std::optional<std::string> ask(std::vector<JobWatch>& watches);

 private:
  using Clock = std::chrono::steady_clock;
  Scheduler scheduler_;
  RunCommand run_ = real_commands(std::chrono::seconds(15));
  size_t next_ = 0;  // of the watches, so that each has its turn
  Clock::time_point asked_{}, answered_ = Clock::now();
  bool silent_ = false;
};

// A job's log, read line by line while it grows.

class LogTail {
 public:
  using Taker = std::function<void(const std::string& line)>;

  explicit LogTail(std::filesystem::path path) : path_(std::move(path)) {}

  /// Hands over each whole line that has come since; at the end the piece of one, too. A file that is not
  /// there, or cannot be read, has none.
  void pass_on(const Taker& to, bool at_end = false);
  bool has_spoken() const { return offset_ > 0; }
  size_t size() const { return offset_; }  // of what has been read
  const std::filesystem::path& path() const { return path_; }

 private:
  bool read_some();  // whether there may be more
  void hand_over(const Taker& to);

  std::filesystem::path path_;
  size_t offset_ = 0;
  std::string piece_;
};

}  // namespace lockstep::cluster
