#include "lockstep/base/timer.h"

#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::base {

struct Timer::Entry {
  std::chrono::milliseconds period;
  std::function<bool()> look;
  bool cancelled = false, running = false;
};

namespace {

using Clock = std::chrono::steady_clock;
using EntryPtr = std::shared_ptr<Timer::Entry>;

class TimerThread {
 public:
  void add(EntryPtr entry) {
    const std::lock_guard lock(mutex_);
    if (process_ != ::getpid()) start();
    const auto when = Clock::now() + entry->period;
    due_.emplace(when, std::move(entry));
    changed_.notify_all();
  }

  void cancel(const EntryPtr& entry) {
    std::function<bool()> released;  // after the lock
    std::unique_lock lock(mutex_);
    entry->cancelled = true;
    const bool can_wait = process_ == ::getpid() && std::this_thread::get_id() != id_;
    if (can_wait) changed_.wait(lock, [&] { return !entry->running; });
    if (!entry->running) released = std::move(entry->look);
  }

 private:
  // A forked process has a copy of the timers, but no thread. It does not destroy what they hold.
  void start() {
    process_ = ::getpid();
    static_cast<void>(new auto(std::exchange(due_, {})));
    std::thread thread([this] { run(); });
    id_ = thread.get_id();
    thread.detach();
  }

  void run() {
    for (std::unique_lock lock(mutex_);;) {
      if (due_.empty()) {
        changed_.wait(lock);
      } else if (const auto when = due_.begin()->first; Clock::now() < when) {
        changed_.wait_until(lock, when);
      } else {
        call(due_.extract(due_.begin()).mapped(), lock);
      }
    }
  }

  // What `look` holds may own another timer, so it is destroyed without the lock.
  void call(EntryPtr entry, std::unique_lock<std::mutex>& lock) {
    if (!entry->cancelled) {
      entry->running = true;
      lock.unlock();
      const bool again = entry->look();
      lock.lock();
      entry->running = false;
      if (again && !entry->cancelled) due_.emplace(Clock::now() + entry->period, entry);
      changed_.notify_all();
    }
    lock.unlock();
    entry.reset();
    lock.lock();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, EntryPtr> due_;
  std::thread::id id_;
  pid_t process_ = 0;  // of the thread
};

// Never destroyed: objects that are destroyed late still cancel their timers.
TimerThread& timer_thread() {
  static auto& thread = *new TimerThread;
  return thread;
}

}  // namespace

Timer::Timer(std::chrono::milliseconds period, std::function<bool()> look)
    : entry_(std::make_shared<Entry>(Entry{period, std::move(look)})) {
  timer_thread().add(entry_);
}

Timer::~Timer() {
  timer_thread().cancel(entry_);
}

}  // namespace lockstep::base
