#pragma once
// Collectives that run one after the other on a thread of their own, while their caller goes on.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
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

/// Its thread begins with the first call.
class CallQueue {
 public:
  /// Null, or the error with which the work ends.
  using Call = std::function<std::exception_ptr()>;

  CallQueue() = default;
  /// What was added ends first, or meets its limit: the others count on it.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void add(c10::intrusive_ptr<QueuedWork> work, Call call);
  /// Whether nothing waits or runs.
  bool idle() const;
  /// How long calls have been at work here, in seconds.
  double busy() const;

 private:
  struct Entry {
    c10::intrusive_ptr<QueuedWork> work;
    Call call;
  };
  void serve();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> waiting_;
  bool runs_ = false;
  bool end_ = false;
  double busy_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::comm
