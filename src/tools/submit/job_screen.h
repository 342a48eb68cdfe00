#pragma once
// What a person sees of one submitted job that is waited for: its state, its log, its progress and its end.

#include <chrono>
#include <list>
#include <string>

#include "tools/cluster/log_tail.h"
#include "tools/cluster/watch.h"
#include "trainer/run_folder/console.h"

namespace lockstep::submit {

/// How it ended: by its run's own word, else by what its scheduler says and where its log is.
std::string end_of(const cluster::Standing& standing, const std::filesystem::path& log);

class JobScreen {
 public:
  /// `name` of the job, as its log has it.
  JobScreen(std::string scheduler, std::string name)
      : scheduler_(std::move(scheduler)), name_(std::move(name)) {}

  void show(const cluster::Standing& standing);
  /// Waits for the log's end, for a while, and says how the job ended.
  void end(const cluster::Standing& standing);

 private:
  void follow(const std::string& job);
  void pass_on_logs(bool at_end);
  void wait_for_log(std::chrono::seconds longest);
  void show_progress(const cluster::Standing& standing);

  using Clock = std::chrono::steady_clock;
  std::string scheduler_, name_;
  run_folder::Console console_{true};
  std::string job_, said_;
  std::list<cluster::LogTail> logs_;
  Clock::time_point looked_{};
  int64_t epoch_ = 0;
};

}  // namespace lockstep::submit
