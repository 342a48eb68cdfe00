#pragma once
// Another backend's Work, whose errors name the ranks at fault.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/comm/watch/timeout_thread.h"

namespace lockstep::comm {

/// What a work, its future and its limit share: the error is judged once.
class CollectiveWatch {
 public:
  CollectiveWatch(std::shared_ptr<RollCall> roll, Collective collective)
      : roll_(std::move(roll)), collective_(std::move(collective)) {}
  /// The error to throw in place of the backend's.
  std::exception_ptr diagnose(const std::exception_ptr& error);
  /// The same where it was we whose patience ended.
  void diagnose_late();
  /// The same where others know that the group is dead, and where it was given up; returns the group's error.
  std::exception_ptr diagnose_lost();
  /// gloo will never say that it is over: whoever waits has the error now.
  void give_up();
  bool is_given_up() const { return given_up_; }
  /// Called by give_up(), or at once where that was before.
  void when_given_up(std::function<void(const std::exception_ptr&)> tell);

  bool is_message() const { return collective_.is_message(); }
  /// Whether it waits for a rank that is gone; looks at processes.
  bool is_hopeless() const { return roll_->is_hopeless(collective_); }
  std::chrono::milliseconds limit() const { return collective_.timeout; }

  /// The clock of its TimeoutThread, which says when it is late.
  void set_end(std::chrono::nanoseconds end) { end_ = end; }
  void note_time(std::chrono::nanoseconds now) { left_ = end_ - now; }
  std::chrono::nanoseconds waited() const { return std::min(limit(), kNever) - left_.load(); }
  bool is_late() const { return left_.load() <= std::chrono::nanoseconds(0); }
  /// Nobody is told any more that it was given up.
  void be_over();
  bool is_over() const { return over_; }

 private:
  bool nearly_late() const;
  std::exception_ptr diagnose_as(const std::string& cause, bool timed_out);

  std::shared_ptr<RollCall> roll_;
  Collective collective_;
  std::chrono::nanoseconds end_{};
  std::atomic<std::chrono::nanoseconds> left_{std::chrono::nanoseconds::max()};
  std::atomic<bool> over_{false}, given_up_{false};
  std::mutex mutex_;
  std::exception_ptr judged_;
  std::vector<std::function<void(const std::exception_ptr&)>> waiting_;  // for given_up_
};

/// Until gloo has ended it, or given_up.
bool wait_unless_given_up(c10d::Work& work, CollectiveWatch& watch);

class WatchedWork : public c10d::Work {
 public:
  WatchedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<CollectiveWatch> watch,
              const std::shared_ptr<TimeoutThread>& limits, int rank, c10d::OpType type);

  bool isCompleted() override { return work_->isCompleted() || watch_->is_given_up(); }
  bool isSuccess() const override { return !watch_->is_given_up() && work_->isSuccess(); }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->sourceRank(); }
  const c10d::Work* inner() const { return work_.get(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  /// A message's limit counts from here; it may have been expected long before.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

 private:
  bool wait_for_message();

  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<CollectiveWatch> watch_;
  std::weak_ptr<TimeoutThread> limits_;  // which hold watches in turn
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A collective that ended before its call returned: the work is a result or an error.

class FinishedWork : public c10d::Work {
 public:
  FinishedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> tensors,
               std::exception_ptr error);

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }

 private:
  uint64_t number_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep::comm
