#pragma once
// A bound on a call that cannot be interrupted: unless the alarm is gone before this process has been awake
// for so long, it acts from its own thread.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::launch {

class Alarm {
 public:
  /// Zero or less never rings.
  Alarm(std::chrono::milliseconds delay, std::function<void()> action);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launch
