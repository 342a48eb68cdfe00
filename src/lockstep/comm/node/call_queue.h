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
  void end(const std::exception_ptr& error);

 private:
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

  void add(c10::intrusive_ptr<QueuedWork> work, Call call);
  /// Whether nothing waits or runs.
  bool idle() const;
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
