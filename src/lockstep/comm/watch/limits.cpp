#include "lockstep/comm/watch/limits.h"

#include <algorithm>

#include "lockstep/base/awake.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;
constexpr auto kPoll = 2ms;

bool is_over(const std::shared_ptr<Watch>& watch) {
  return watch->is_over();
}

}  // namespace

Limits::Limits(Connections lines) : lines_(std::move(lines)), thread_([this] { keep(); }) {}

Limits::~Limits() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Limits::add(const std::shared_ptr<Watch>& watch) {
  watch->set_end(now_.load() + kLook +
                 std::min(watch->limit(), kNever));  // rather a look too late than too early
  const std::lock_guard<std::mutex> guard(mutex_);
  pending_.push_back(watch);
}

void Limits::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto nothing_pending = [this] {
    std::erase_if(pending_, is_over);
    return cut_ || pending_.empty();
  };
  while (!changed_.wait_for(lock, kPoll, nothing_pending)) continue;
}

std::shared_ptr<Watch> Limits::late_one(std::chrono::nanoseconds now) {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(pending_, is_over);
  for (const auto& watch : pending_) {
    watch->note_time(now);
    if (watch->is_late()) return watch;
  }
  return nullptr;
}

void Limits::keep() {
  base::AwakeTime awake;
  const auto ended = [this] {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kLook, [this] { return end_; });
  };
  while (!ended()) {
    now_ = awake.passed();
    const auto late = late_one(now_);
    if (!late) continue;
    late->judge_late();  // before the others meet the cut: then they find the reason
    const std::lock_guard<std::mutex> guard(mutex_);
    cut(lines_);
    cut_ = true;
    return;
  }
}

}  // namespace lockstep::comm
