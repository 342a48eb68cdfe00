// First within each node to its first rank, then a ring over these, then within the nodes again: only one
// rank of a node uses the network. Nodes may have different numbers of ranks.
#include <map>

#include "lockstep/comm/algorithms/tree.h"

namespace lockstep::algorithms {
namespace {

// Some of the ranks, renumbered.
class Some : public Messenger {
 public:
  Some(Messenger& all, const std::vector<int>& members) : all_(all), members_(members) {}
  int rank() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), all_.rank()) - members_.begin());
  }
  int world() const override { return static_cast<int>(members_.size()); }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<Outgoing> sent(out.begin(), out.end());
    std::vector<Incoming> received(in.begin(), in.end());
    for (auto& message : sent) message.to = members_[static_cast<std::size_t>(message.to)];
    for (auto& message : received) message.from = members_[static_cast<std::size_t>(message.from)];
    all_.exchange(sent, received);
  }

 private:
  Messenger& all_;
  const std::vector<int>& members_;
};

}  // namespace

void two_level(Messenger& messenger, const Numbers& numbers) {
  std::map<int, std::vector<int>> nodes;
  for (int rank = 0; rank < messenger.world(); ++rank) nodes[messenger.node_of(rank)].push_back(rank);
  std::vector<int> firsts;
  for (const auto& [node, ranks] : nodes) firsts.push_back(ranks[0]);
  const auto& mates = nodes[messenger.node_of(messenger.rank())];
  reduce_to_first(messenger, numbers, mates);
  if (messenger.rank() == mates[0]) {
    Some leaders(messenger, firsts);
    ring(leaders, numbers);
  }
  broadcast_from_first(messenger, numbers, mates);
}

}  // namespace lockstep::algorithms
