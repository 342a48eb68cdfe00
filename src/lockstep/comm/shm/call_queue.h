#pragma once
// Collectives that run one after the other on a thread of their own, while the caller continues.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::comm {

/// The work of such a collective. Errors arrive as c10d defines them, in wait() and the future.
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

/// The thread starts with the first call. Each call runs with the thread-local state of its caller.
class CallQueue {
 public:
  /// Null, or the error with which the work ends.
  using Call = std::function<std::exception_ptr()>;

  CallQueue();
  /// Waits until the calls have ended, because other ranks take part in them. If a callback of a call
  /// destroys the queue, the calls that still wait end with an error.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// In a callback, on the queue's own thread, it runs all waiting calls at once.
  void add(c10::intrusive_ptr<QueuedWork> work, Call call);
  /// The running call may never return: it, the waiting calls and later calls end with this error. `owner`,
  /// which the call may use, is never freed.
  void abandon(c10::intrusive_ptr_target& owner, const std::exception_ptr& error);
  /// Whether no call waits or runs.
  bool idle() const { return !newest(); }
  /// The last of those that wait or run, or null.
  c10::intrusive_ptr<QueuedWork> newest() const;
  /// Whether the caller is on this queue's thread: in a callback of a work that has ended.
  bool runs_here() const;
  /// Only on the queue's thread: runs the waiting calls now.
  void run_waiting();
  /// How long calls have run here, in seconds.
  double busy() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::comm
