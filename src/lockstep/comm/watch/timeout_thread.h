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

#include "lockstep/comm/watch/peer_connections.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

class CollectiveWatch;

/// For gloo, which knows no "for ever".
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

/// A thread that looks at what is under way. The first to be late is declared so, and with the group's death
/// the lines are cut: whatever else waits meets an error, and nothing begins any more. What gloo does not end
/// even then is given up.
class TimeoutThread {
 public:
  TimeoutThread(Connections lines, std::shared_ptr<const RollCall> roll);
  ~TimeoutThread();
  TimeoutThread(const TimeoutThread&) = delete;
  TimeoutThread& operator=(const TimeoutThread&) = delete;

  /// From now until it is over.
  void add(const std::shared_ptr<CollectiveWatch>& watch);
  /// Until all that was added is over, or cut.
  void drain();
  /// Ends the connections, as they are of no use to a group that is dead.
  void cut_lines();

 private:
  void keep();
  void look(std::chrono::nanoseconds now);
  void give_up_the_rest();
  std::vector<std::shared_ptr<CollectiveWatch>> pending();

  Connections lines_;
  std::shared_ptr<const RollCall> roll_;
  int looks_ = 0, hopeless_looks_ = 0;
  std::atomic<std::chrono::nanoseconds> now_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<CollectiveWatch>> pending_;
  bool end_ = false;
  bool cut_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
