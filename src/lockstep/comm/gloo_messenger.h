#pragma once
// Messages of one collective over gloo, which waits as long as it takes: who begins the collective keeps
// time.

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

class GlooMessenger : public Messenger {
 public:
  GlooMessenger(c10d::ProcessGroupGloo& gloo, const RollCall& roll) : gloo_(gloo), roll_(roll) {}
  int rank() const override { return roll_.rank(); }
  int world() const override { return static_cast<int>(roll_.peers().size()); }
  int node_of(int rank) const override { return roll_.peers()[static_cast<size_t>(rank)].node; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  c10d::ProcessGroupGloo& gloo_;
  const RollCall& roll_;
};

}  // namespace lockstep::comm
