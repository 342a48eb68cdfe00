#pragma once
// When the job ends, also where its scheduler was too busy to say so when the run began.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/launch/deadline.h"

namespace lockstep::launch {

/// The job's end for who leaves `margin` before (end_to_leave_before). Asked at once, and again by a thread
/// until somebody answers: after `wait`, then after twice as long each time, as a job without a limit has no
/// end.
class JobEnd {
 public:
  JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
         std::chrono::milliseconds wait = std::chrono::minutes(1));
  ~JobEnd();
  JobEnd(const JobEnd&) = delete;
  JobEnd& operator=(const JobEnd&) = delete;

  /// Nothing as long as nobody has told.
  std::optional<Time> known() const;

 private:
  void ask();

  const Job job_;
  const Environment environment_;
  const std::chrono::milliseconds margin_;
  mutable std::mutex mutex_;
  std::condition_variable leaves_;
  bool left_ = false;
  std::optional<Time> end_;
  std::thread asks_again_;
};

}  // namespace lockstep::launch
