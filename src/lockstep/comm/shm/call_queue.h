#pragma once
// Collectives that run one after the other on a thread of their own, while their caller goes on.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::comm {

/// What the caller of such a collective holds. Errors arrive as c10d defines them, in wait() and the future.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> results);
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }
  /// The first call counts.
  void end(const std::exception_ptr& error);

 private:
  std::atomic_flag ended_ = ATOMIC_FLAG_INIT;
  uint64_t number_;
  std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Its thread begins with the first call, and has the thread-local state of whoever adds one meanwhile.
class CallQueue {
 public:
  /// Null, or the error with which the work ends.
  using Call = std::function<std::exception_ptr()>;

  CallQueue();
  /// What was added ends first, or meets its limit: the others count on it. A callback of such a work may
  /// hold the last of what owns this queue: then what still waits ends with an error.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// On the queue's own thread, in a callback, it runs what waits at once.
  void add(c10::intrusive_ptr<QueuedWork> work, Call call);
  /// The call at work may never return: it, what waits and what is added from now on end with that error, and
  /// `owner`, which the call may use, is not freed.
  void abandon(c10::intrusive_ptr_target& owner, const std::exception_ptr& error);
  /// Whether nothing waits or runs.
  bool idle() const { return !newest(); }
  /// The last of those that wait or run, or null.
  c10::intrusive_ptr<QueuedWork> newest() const;
  /// Whether the caller is on this queue's thread: in a callback of a work that has ended.
  bool runs_here() const;
  /// There alone: what waits, now.
  void run_waiting();
  /// How long calls have been at work here, in seconds.
  double busy() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::comm
