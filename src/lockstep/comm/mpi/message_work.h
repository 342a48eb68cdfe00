#pragma once
// A message on its way between two ranks.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>

#include "lockstep/comm/memory/patience.h"
#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::comm {

/// Ends in wait(), whose deadline is the group's timeout. The tensor is kept until MPI has let go of it.
class MessageWork : public c10d::Work {
 public:
  struct Transfer {
    at::Tensor tensor;    // the caller's
    at::Tensor buffer;    // contiguous: the tensor itself or a copy
    Collective expected;  // how an error speaks of it
  };
  MessageWork(int rank, c10d::OpType type, Transfer transfer, mpi::Request request,
              std::shared_ptr<RollCall> roll, std::shared_ptr<std::mutex> mpi);
  ~MessageWork() override;

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return {transfer_.tensor}; }

 private:
  bool test();
  void take(const mpi::Status& status);
  void wait_for(const Collective& expected);
  void fail(const Collective& expected, const OutOfPatience& reason);

  Transfer transfer_;
  mpi::Request request_;
  std::shared_ptr<RollCall> roll_;
  std::shared_ptr<std::mutex> mpi_;
  int source_;
};

}  // namespace lockstep::comm
