#pragma once
// Ends what gloo waits for too long, with an error that names the ranks at fault. gloo's own clock also
// counts while a job is suspended. So gloo waits forever, and this file keeps the timeouts: it counts only
// the time in which this process was awake.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/timer.h"
#include "lockstep/comm/watch/peer_connections.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// Forever, for gloo.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

/// What a work, its future and its timeout share: they have one error.
class CollectiveWatch {
 public:
  CollectiveWatch(std::shared_ptr<PeerMonitor> monitor, Collective collective)
      : monitor_(std::move(monitor)), collective_(std::move(collective)) {}
  /// The error to throw instead of the backend's.
  std::exception_ptr diagnose(const std::exception_ptr& error);
  /// The same after the timeout.
  std::exception_ptr diagnose_late() { return diagnose_as("", true); }
  /// The same if other ranks know that the group is dead, or after give_up(). Returns the group's error.
  std::exception_ptr diagnose_lost() { return diagnose_as("", false); }
  /// gloo will never end it: threads that wait for it get the error now.
  void give_up();
  bool is_given_up() const { return given_up_; }
  /// Calls `tell` in give_up(), or at once if give_up() was called before.
  void when_given_up(std::function<void(const std::exception_ptr&)> tell);
  /// It has ended: give_up() does nothing from now on.
  void mark_done();
  bool is_over() const { return over_; }

  bool is_message() const { return collective_.is_message(); }
  /// Whether it waits for a rank that has ended. Reads /proc.
  bool waits_for_lost_rank() const { return monitor_->waits_for_lost_rank(collective_); }
  std::chrono::milliseconds limit() const { return std::min(collective_.timeout, kNever); }

  /// For the one thread that keeps its time, which it counts from start() to each look().
  void start() { awake_ = {}; }
  void look() { waited_ = awake_.passed(); }
  std::chrono::nanoseconds waited() const { return waited_; }
  bool is_late() const { return waited() > limit(); }

 private:
  bool nearly_late() const;
  std::exception_ptr diagnose_as(const std::string& cause, bool timed_out);

  std::shared_ptr<PeerMonitor> monitor_;
  Collective collective_;
  base::AwakeTime awake_;
  std::atomic<std::chrono::nanoseconds> waited_{};
  std::atomic<bool> over_{false}, given_up_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::function<void(const std::exception_ptr&)>> waiting_;  // for given_up_
};

/// Checks the calls that are under way. The first one to be late ends the group. Then the connections are
/// cut, so all other calls fail too. A call that gloo does not end even then is given up.
class TimeoutThread {
 public:
  TimeoutThread(Connections connections, std::shared_ptr<const PeerMonitor> monitor);
  ~TimeoutThread();
  TimeoutThread(TimeoutThread&&) = delete;

  /// Checks it until it is over.
  void add(const std::shared_ptr<CollectiveWatch>& watch);
  /// Waits until all calls are over, or the connections are cut.
  void drain();
  /// Ends the connections of a dead group.
  void cut_connections();

 private:
  bool look();
  bool diagnose(const std::shared_ptr<CollectiveWatch>& watch, bool late);
  std::vector<std::shared_ptr<CollectiveWatch>> pending();
  void give_up_all();

  Connections connections_;
  std::shared_ptr<const PeerMonitor> monitor_;
  int looks_ = 0, checks_of_dead_group_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<CollectiveWatch>> pending_;
  std::atomic<bool> cut_{false};
  std::future<void> diagnosis_;
  std::unique_ptr<base::Timer> timer_;  // uses the rest
};

/// Waits until gloo has ended it or it was given up.
bool wait_unless_given_up(c10d::Work& work, CollectiveWatch& watch);

/// Another backend's Work. Its errors name the ranks at fault.
class WatchedWork : public c10d::Work {
 public:
  WatchedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<CollectiveWatch> watch,
              const std::shared_ptr<TimeoutThread>& timeouts, int rank, c10d::OpType type);

  bool isCompleted() override { return work_->isCompleted() || watch_->is_given_up(); }
  bool isSuccess() const override { return !watch_->is_given_up() && work_->isSuccess(); }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->sourceRank(); }
  const c10d::Work* inner() const { return work_.get(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  /// A message's timeout begins here, not when the receive was posted.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

 private:
  bool wait_for_message();

  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<CollectiveWatch> watch_;
  std::weak_ptr<TimeoutThread> timeouts_;  // which has pointers to watches
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// A collective that ended, with a result or an error, before its call returned.
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
