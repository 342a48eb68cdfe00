#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "context.h"
#include "lifetime.h"
#include "settings.h"
#include "streams.h"

namespace pretended {
namespace {

// Signals are for the threads of the program.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

std::chrono::milliseconds lateness() {
  static const std::chrono::milliseconds value(number("LAB_LATE_MS", lab::strict() ? 50 : 0));
  return value;
}

[[noreturn]] void stand_still(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  for (;;) ::pause();
}

}  // namespace

unsigned long long next_id() {
  static std::atomic<unsigned long long> next{1};
  return next++;
}

Stream::Stream(int of_device, unsigned with_flags, int with_priority, bool is_default)
    : device(of_device), priority(with_priority), flags(with_flags), legacy(is_default), id(next_id()) {}

unsigned long long Stream::put(Node node) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(node), std::chrono::steady_clock::now()});
  ++given_;
  if (!started_) start();
  changed_.notify_all();
  return given_;
}

void Stream::demand(unsigned long long length) {
  const std::lock_guard lock(mutex_);
  if (demanded_ >= length) return;
  demanded_ = length;
  changed_.notify_all();
}

void Stream::start() {
  const NoSignals in_the_thread;
  started_ = true;
  stop_at_exit();
  std::thread([self = shared_from_this()]() mutable {
    self->run();
    self.reset();
  }).detach();
}

// False when the thread has nothing to do any more. A thread whose process ends stands still.
bool Stream::wait_for_work(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (ended()) stand_still(lock);
    if (queue_.empty() && closed_) return false;
    if (queue_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto begin = queue_.front().since + lateness();
    if (closed_ || demanded_ > done_ || std::chrono::steady_clock::now() >= begin) return true;
    changed_.wait_until(lock, begin);
  }
}

void Stream::run() {
  set_this_device(device);
  std::unique_lock lock(mutex_);
  runner_ = std::this_thread::get_id();
  while (wait_for_work(lock)) {
    Node node = std::move(queue_.front().node);
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    perform(std::move(node));
    lock.lock();
    running_ = false;
    ++done_;
    changed_.notify_all();
  }
}

void Stream::perform(Node node) {
  try {
    std::optional<lab::Access> access;
    if (node.touches_memory) access.emplace();
    node.work();
    node.work = nullptr;  // what it holds goes while memory may be touched
  } catch (const std::exception& error) {
    lab::say("%s on a stream of device %d threw: %s", node.what.c_str(), device, error.what());
    lab::fail_device(device, cudaErrorLaunchFailure);
  }
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == given_;
}

bool Stream::running() {
  const std::lock_guard lock(mutex_);
  return running_;
}

unsigned long long Stream::length() {
  const std::lock_guard lock(mutex_);
  return given_;
}

void Stream::wait_until(unsigned long long length) {
  std::unique_lock lock(mutex_);
  if (runner_ == std::this_thread::get_id()) return;
  demanded_ = std::max(demanded_, length);
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= length || ended(); });
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace pretended
