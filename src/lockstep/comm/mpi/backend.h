#pragma once
// The backend "mpi": c10d's collectives on CPU tensors over MPI and the node's shared memory.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/shm/backend.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/comm/shm/reduction.h"
#include "lockstep/comm/shm/transport.h"

namespace lockstep::comm {

// What the first ranks of the nodes exchange over MPI, waiting with a deadline.

/// Only MPI's data movement is used, so the order of summation is ours: node 0 + node 1 + node 2 ….
class NodeLink {
 public:
  NodeLink(const MpiComms& comms, std::mutex& mpi) : comms_(comms), mpi_(mpi) {}

  bool needed() const { return comms_.nodes > 1; }
  bool is_leader() const { return comms_.local_rank == 0; }

  void all_reduce(std::byte* data, size_t items, const Reduction& reduction, BoundedWait& wait);
  void broadcast(std::byte* data, size_t bytes, int root_node, BoundedWait& wait);
  /// Blocks of `bytes` a rank, node by node: `node_blocks` holds this node's, `all` receives everybody's.
  void all_gather(const std::byte* node_blocks, size_t bytes, std::byte* all, BoundedWait& wait);
  void barrier(BoundedWait& wait);

 private:
  template <class Start>
  void run(const char* call, BoundedWait& wait, Start&& start);

  const MpiComms& comms_;
  std::mutex& mpi_;
  std::vector<std::byte> padded_, sections_, own_;
};

// Collectives over several nodes: inside each through its shared memory, between them by MPI through their
// first ranks.

/// Sums are in rank order within a node, then in node order.
class MpiTransport : public Transport {
 public:
  /// Collective over `world`, the ranks of `roll`, of which it makes communicators of its own.
  MpiTransport(mpi::Comm world, RollCall& roll, std::chrono::milliseconds join_timeout);

  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  const ReductionOrder& fold, BoundedWait& wait) override;
  void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) override;
  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                  BoundedWait& wait) override;
  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, const ReductionOrder& fold, size_t at,
                      BoundedWait& wait) override;
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                BoundedWait& wait) override;
  void barrier(BoundedWait& wait) override;
  NodeTransport& node() override { return *node_; }

  const MpiComms& comms() const { return comms_; }
  /// MPI is entered by one thread at a time.
  const std::shared_ptr<std::mutex>& mpi() const { return mpi_; }

 private:
  size_t chunk_bytes(const Reduction& reduction) const;
  void reduce_chunk(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                    const ReductionOrder& fold, BoundedWait& wait);
  void sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes, const Reduction& reduction,
                      const ReductionOrder& fold, BoundedWait& wait);
  void reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& fold,
                       BoundedWait& wait);
  void share_from_leader(BoundedWait& wait);
  int own_rank() const { return comms_.local_ranks[static_cast<size_t>(comms_.local_rank)]; }
  bool is_leader() const { return comms_.local_rank == 0; }

  void require_same_call(BoundedWait& wait);

  const RollCall& roll_;
  MpiComms comms_;
  std::shared_ptr<std::mutex> mpi_ = std::make_shared<std::mutex>();
  std::unique_ptr<NodeTransport> node_;
  shm::Segment& window_;
  NodeLink link_;
  std::vector<std::byte> scratch_;
};

class MpiBackend : public TransportBackend, public Carrier {
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
