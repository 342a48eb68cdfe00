#pragma once
// Ends what gloo would wait for too long. Its own clock goes on while a job is suspended, so it is told to
// wait for ever, and the limits are kept here, in time that this process was awake.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/comm/watch/lines.h"

namespace lockstep::comm {

class Watch;

/// For gloo, which knows no "for ever".
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

/// A thread that looks at what is under way. The first to be late is declared so, and then `lines` are cut:
/// whatever else waits meets an error, and nothing begins any more.
class Limits {
 public:
  explicit Limits(Connections lines);
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  /// From now until it is over.
  void add(const std::shared_ptr<Watch>& watch);
  /// Until all that was added is over, or cut.
  void drain();

 private:
  void keep();
  std::shared_ptr<Watch> late_one(std::chrono::nanoseconds now);

  Connections lines_;
  std::atomic<std::chrono::nanoseconds> now_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Watch>> pending_;
  bool end_ = false;
  bool cut_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
