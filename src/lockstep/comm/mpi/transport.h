#pragma once
// Collectives over several nodes: inside each through its shared memory, between them by MPI through their
// first ranks.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/mpi/node_link.h"
#include "lockstep/comm/node/node_transport.h"

namespace lockstep::comm {

/// Sums are in rank order within a node, then in node order.
class MpiTransport : public Transport {
 public:
  /// Collective over `world`, the ranks of `roll`, of which it makes communicators of its own.
  MpiTransport(mpi::Comm world, RollCall& roll, std::chrono::milliseconds join_timeout);

  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  const Fold& fold, Patience& patience) override;
  void broadcast(std::byte* data, size_t bytes, int root, Patience& patience) override;
  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                  Patience& patience) override;
  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, const Fold& fold, size_t at, Patience& patience) override;
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                Patience& patience) override;
  void barrier(Patience& patience) override;
  void name_call(const CallWord& call) override {
    call_ = call;
    node_->name_call(call);
  }
  void arrive() override { node_->arrive(); }
  bool all_arrived() override { return node_->all_arrived(); }
  std::shared_ptr<NodeBlock> take_block(size_t bytes, Patience& patience) override {
    return node_->take_block(bytes, patience);
  }
  int place() const override { return node_->place(); }
  bool crowded() const override { return node_->crowded(); }

  const MpiComms& comms() const { return comms_; }
  /// MPI is entered by one thread at a time.
  const std::shared_ptr<std::mutex>& mpi() const { return mpi_; }

 private:
  size_t chunk_bytes(const Reduction& reduction) const;
  void reduce_chunk(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                    const Fold& fold, Patience& patience);
  void sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes, const Reduction& reduction,
                      const Fold& fold, Patience& patience);
  void reduce_in_place(size_t bytes, const Reduction& reduction, const Fold& fold, Patience& patience);
  void share_from_leader(Patience& patience);
  int own_rank() const { return comms_.local_ranks[static_cast<size_t>(comms_.local_rank)]; }
  bool is_leader() const { return comms_.local_rank == 0; }

  void require_same_call(Patience& patience);

  const RollCall& roll_;
  CallWord call_;
  MpiComms comms_;
  std::shared_ptr<std::mutex> mpi_ = std::make_shared<std::mutex>();
  std::unique_ptr<NodeTransport> node_;
  NodeWindow& window_;
  NodeLink link_;
  std::vector<std::byte> scratch_;
};

}  // namespace lockstep::comm
