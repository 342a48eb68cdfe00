#pragma once
// The backend "mpi": c10d's collectives on CPU tensors over MPI and the node's shared memory.

#include <memory>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/mpi/transport.h"
#include "lockstep/comm/node/inline_backend.h"

namespace lockstep::comm {

class MpiBackend : public InlineBackend, public Carrier {
 public:
  /// Collective over `world`, whose ranks are the roll's.
  MpiBackend(mpi::Comm world, std::shared_ptr<RollCall> roll, std::chrono::milliseconds join_timeout,
             std::chrono::milliseconds timeout);
  std::exception_ptr carry(const Collective& collective, const std::function<void(Messenger&)>& body,
                           const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override { compare_calls(own, collective); }

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  const MpiTransport& mpi() const { return static_cast<const MpiTransport&>(transport()); }
  template <class Start>
  WorkPtr post(c10d::OpType type, int peer, const at::Tensor& tensor, const at::Tensor& buffer,
               Start&& start);
  WorkPtr receive(c10d::OpType type, Tensors& tensors, int from, int tag);
};

}  // namespace lockstep::comm
