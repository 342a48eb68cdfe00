#pragma once
// Messages of one collective over MPI: point to point, tested in turns that look after the other ranks.

#include <mutex>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/memory/patience.h"
#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::comm {

/// Throws OutOfPatience.
class MpiMessenger : public Messenger {
 public:
  MpiMessenger(mpi::Comm all, int tag, std::mutex& mpi, const RollCall& roll, Patience& patience)
      : all_(all), tag_(tag), mpi_(mpi), roll_(roll), patience_(patience) {}
  int rank() const override { return roll_.rank(); }
  int world() const override { return static_cast<int>(roll_.peers().size()); }
  int node_of(int rank) const override { return roll_.peers()[static_cast<size_t>(rank)].node; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  mpi::Comm all_;
  int tag_;
  std::mutex& mpi_;
  const RollCall& roll_;
  Patience& patience_;
};

}  // namespace lockstep::comm
