#pragma once
// The one thread of this process that checks for timeouts.

#include <chrono>
#include <functional>
#include <memory>

namespace lockstep::base {

/// Calls `look` every `period` until it returns false or this object is destroyed. The calls of all timers
/// run one after the other on one thread: none may wait for another timer.
class Timer {
 public:
  Timer(std::chrono::milliseconds period, std::function<bool()> look);
  /// Waits for a running call, unless that call destroys this object, and destroys `look`.
  ~Timer();
  Timer(Timer&&) = delete;

  struct Entry;

 private:
  std::shared_ptr<Entry> entry_;
};

}  // namespace lockstep::base
