#pragma once
// The backend "mpi": c10d's collectives on CPU tensors over MPI and the node's shared memory.

#include <chrono>
#include <memory>

#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/shm/backend.h"

namespace lockstep::comm {

/// Sums are in rank order within a node, then in node order.
class MpiBackend : public TransportBackend, public MessageRunner {
 public:
  /// Collective over the communicator, whose ranks are those of `monitor`.
  MpiBackend(std::shared_ptr<MpiLink> mpi, std::shared_ptr<PeerMonitor> monitor,
             std::chrono::milliseconds join_timeout, std::chrono::milliseconds timeout);
  std::exception_ptr run_messages(const Collective& collective, const std::function<void(Messenger&)>& body,
                                  const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override { compare_calls(own, collective); }

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  template <class Start>
  WorkPtr post(c10d::OpType type, int peer, const at::Tensor& tensor, const at::Tensor& buffer,
               Start&& start);
  WorkPtr receive(c10d::OpType type, Tensors& tensors, int from, int tag);

  std::shared_ptr<MpiLink> mpi_;
};

}  // namespace lockstep::comm
