#include "nccl/turns.h"

namespace lab::nccl {

std::uint64_t Turns::take() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void Turns::give_back(std::uint64_t turn) {
  const std::lock_guard lock(mutex_);
  back_.insert(turn);
  while (back_.erase(next_)) ++next_;
  changed_.notify_all();
}

bool Turns::begin(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || (next_ == turn && !runs_); });
  if (!stopped_) runs_ = true;
  return !stopped_;
}

bool Turns::begin_between() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || !runs_; });
  if (!stopped_) runs_ = true;
  return !stopped_;
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  runs_ = false;
  changed_.notify_all();
}

void Turns::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Turns::wait_quiet() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !runs_; });
}

void Turns::wait_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !runs_ && (stopped_ || next_ == taken_); });
}

}  // namespace lab::nccl
