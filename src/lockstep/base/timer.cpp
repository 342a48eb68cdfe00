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
    std::function<bool()> look;  // what it holds may cancel timers itself, so it ends after the lock
    std::unique_lock lock(mutex_);
    entry->cancelled = true;
    const bool can_wait = process_ == ::getpid() && std::this_thread::get_id() != id_;
    if (can_wait) changed_.wait(lock, [&] { return !entry->running; });
    if (!entry->running) look = std::exchange(entry->look, nullptr);
  }

 private:
  // A forked process has a copy of the timers, and no thread.
  void start() {
    process_ = ::getpid();
    due_.clear();
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

  void call(const EntryPtr& entry, std::unique_lock<std::mutex>& lock) {
    if (entry->cancelled) return;
    entry->running = true;
    lock.unlock();
    const bool again = entry->look();
    lock.lock();
    entry->running = false;
    if (again && !entry->cancelled) due_.emplace(Clock::now() + entry->period, entry);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, EntryPtr> due_;
  std::thread::id id_;
  pid_t process_ = 0;  // that the thread is in
};

// It lives to the very end: objects that end late still cancel their timers.
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
