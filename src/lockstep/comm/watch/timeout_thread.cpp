#include "lockstep/comm/watch/timeout_thread.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;
constexpr int kLooksPerRollCall = 5;  // at processes, in which time gloo has mostly met the death itself
constexpr auto kDrainPoll = 2ms;
constexpr auto kGrace = 1000ms;  // for gloo to end what was cut

bool is_over(const std::shared_ptr<CollectiveWatch>& watch) {
  return watch->is_over();
}

}  // namespace

TimeoutThread::TimeoutThread(Connections lines, std::shared_ptr<const RollCall> roll)
    : lines_(std::move(lines)), roll_(std::move(roll)), thread_([this] { keep(); }) {}

TimeoutThread::~TimeoutThread() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TimeoutThread::add(const std::shared_ptr<CollectiveWatch>& watch) {
  watch->set_end(now_.load() + kLook +
                 std::min(watch->limit(), kNever));  // rather a look too late than too early
  const std::lock_guard<std::mutex> guard(mutex_);
  pending_.push_back(watch);
}

void TimeoutThread::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto nothing_pending = [this] {
    std::erase_if(pending_, is_over);
    return cut_ || pending_.empty();
  };
  while (!changed_.wait_for(lock, kDrainPoll, nothing_pending)) continue;
}

void TimeoutThread::cut_lines() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (std::exchange(cut_, true)) return;
    cut(lines_);
  }
  changed_.notify_all();
}

std::vector<std::shared_ptr<CollectiveWatch>> TimeoutThread::pending() {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(pending_, is_over);
  return pending_;
}

// A mate may know that the group is dead, and gloo here not hear of it; nor may it ever end a send to a mate
// that was killed.
void TimeoutThread::look(std::chrono::nanoseconds now) {
  const auto all = pending();
  hopeless_looks_ = !all.empty() && roll_->knows_death() ? hopeless_looks_ + 1 : 0;
  const bool calls_roll = ++looks_ % kLooksPerRollCall == 0;
  for (const auto& watch : all) {
    watch->note_time(now);
    const bool asks = watch->is_late() || (calls_roll && watch->waited() > kLooksPerRollCall * kLook);
    // whoever found out why the group is dead, and has gone since, has said so before
    if (asks && watch->is_hopeless() && !roll_->knows_death()) {
      watch->diagnose_lost();
      return;
    }
    if (watch->is_late()) return watch->diagnose_late();
  }
  if (hopeless_looks_ * kLook > kGrace) all.front()->diagnose_lost();
}

// Two of gloo's threads may wait for each other: one writes to a peer that is gone and holds what the other
// needs, which is to see that the line is closed.
void TimeoutThread::give_up_the_rest() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto all_over = [this] {
      std::erase_if(pending_, is_over);
      return end_ || pending_.empty();
    };
    for (auto waited = 0ms; waited < kGrace; waited += kLook) {
      if (changed_.wait_for(lock, kLook, all_over)) break;
    }
  }
  for (const auto& watch : pending()) watch->give_up();
}

void TimeoutThread::keep() {
  base::AwakeTime awake;
  const auto ended = [this] {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return end_ || cut_; });
    return end_ || cut_;
  };
  while (!ended()) {
    now_ = awake.passed();
    look(now_);
  }
  give_up_the_rest();
}

}  // namespace lockstep::comm
