#pragma once
// Another backend's Work, whose errors name the ranks at fault.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>

#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// What a work and its future share: the error is judged once.
class Watch {
 public:
  Watch(std::shared_ptr<RollCall> roll, Collective collective)
      : roll_(std::move(roll)), collective_(std::move(collective)) {}
  std::exception_ptr judge(const std::exception_ptr& error);
  /// What wait() without a limit is to wait: gloo's messages know no timeout but that of the connecting.
  std::chrono::milliseconds limit() const {
    return collective_.is_message() ? collective_.timeout : kNoTimeout;
  }

 private:
  std::shared_ptr<RollCall> roll_;
  Collective collective_;
  std::mutex mutex_;
  std::exception_ptr judged_;
};

class WatchedWork : public c10d::Work {
 public:
  WatchedWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Watch> watch, int rank, c10d::OpType type);

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<Watch> watch_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace lockstep::comm
