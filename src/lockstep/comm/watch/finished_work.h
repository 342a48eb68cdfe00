#pragma once
// A collective that ended before its call returned: the work is a result or an error.

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::comm {

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
