#include "lockstep/comm/shared_backend.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/node/node_transport.h"
#include "lockstep/comm/nodes_backend.h"

namespace lockstep::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

std::vector<Peer> peers_on(int node, const std::vector<Peer>& peers) {
  std::vector<Peer> here;
  for (const auto& peer : peers) {
    if (peer.node == node) here.push_back(peer);
  }
  return here;
}

NodeRanks ranks_of(const std::vector<Peer>& peers, int own) {
  NodeRanks ranks;
  for (const auto& peer : peers) {
    if (peer.rank == own) ranks.own = static_cast<int>(ranks.ranks.size());
    ranks.ranks.push_back(peer.rank);
  }
  return ranks;
}

// Nothing where gloo's ring does not pass from node to node, or has nothing to save: a node has one rank
// each.
std::optional<NodeLayout> layout_of(const std::vector<Peer>& peers, int own) {
  NodeLayout layout;
  std::vector<int> nodes;
  for (const auto& peer : peers) {
    if (nodes.empty() || nodes.back() != peer.node) {
      if (std::find(nodes.begin(), nodes.end(), peer.node) != nodes.end()) return std::nullopt;
      nodes.push_back(peer.node);
      layout.firsts.push_back(peer.rank);
    }
    if (peer.rank == own) layout.own = static_cast<int>(nodes.size()) - 1;
  }
  if (nodes.size() == peers.size()) return std::nullopt;
  layout.firsts.push_back(static_cast<int>(peers.size()));
  return layout;
}

// gloo sees a peer's death at its socket; in memory only its process number tells of it.
std::string why_apart(const std::vector<Peer>& peers) {
  const Peer& first = peers.front();
  for (const auto& peer : peers) {
    if (peer.pid_space != first.pid_space || peer.host != first.host)
      return format(
          "rank {} does not see the processes of rank {} (a PID namespace or a host name of its own), "
          "and would not notice its death",
          first.rank, peer.rank);
  }
  return "";
}

void tell_of_gloo(const RollCall& roll, const std::string& why) {
  if (roll.rank() != 0) return;
  log::warning(
      format("the ranks share no memory, so sums go over sockets (gloo), slower and to the same "
             "bits: {}\n  to do: make /dev/shm larger (a container: --shm-size), and the same one "
             "for all ranks of a node",
             why));
}

// The first reason why a node's ranks share no memory, the same on all ranks of the group.
std::string agreed(RollCall& roll, const std::string& why, std::chrono::milliseconds timeout) {
  const auto all = or_who_is_late(roll, timeout, [&] {
    return exchange(*roll.store(), "nodes/why", ranks_of(roll.peers(), roll.rank()), why);
  });
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  return found == all.end() ? "" : *found;
}

// The memory of `here`, this node's ranks; null, and why not, where they share none.
std::unique_ptr<NodeTransport> open_memory(RollCall& roll, const std::string& name,
                                           const std::vector<Peer>& here, size_t slot_bytes,
                                           std::chrono::milliseconds join_timeout, std::string& why) {
  why = why_apart(here);
  if (!why.empty()) return nullptr;
  return open_node(roll, name, ranks_of(here, roll.rank()), slot_bytes, join_timeout, why);
}

BackendPtr over_nodes(BackendPtr gloo, NodeLayout layout, std::shared_ptr<RollCall> roll,
                      std::chrono::milliseconds join_timeout, std::chrono::milliseconds timeout) {
  const auto& peers = roll->peers();
  const auto here = peers_on(peers[static_cast<size_t>(roll->rank())].node, peers);
  std::string why;
  auto node =
      open_memory(*roll, format("node/{}", layout.own), here, NodesBackend::kMostBytes, join_timeout, why);
  const auto first = agreed(*roll, why, join_timeout);
  if (first.empty())
    return c10::make_intrusive<NodesBackend>(std::move(gloo), std::move(node), std::move(layout),
                                             std::move(roll), timeout);
  tell_of_gloo(*roll, first);
  return gloo;
}

BackendPtr on_a_node(BackendPtr gloo, std::shared_ptr<RollCall> roll, std::chrono::milliseconds join_timeout,
                     std::chrono::milliseconds timeout) {
  const auto& peers = roll->peers();
  std::string why;
  auto node = open_memory(*roll, "node", peers, slot_bytes_for(peers.size()), join_timeout, why);
  if (node)
    return c10::make_intrusive<InlineBackend>("shared", std::move(gloo), std::move(node), std::move(roll),
                                              timeout, SumOrder::as_gloo, Execution::in_the_call_or_behind);
  tell_of_gloo(*roll, why);
  return gloo;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<RollCall> roll,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout) {
  const auto& peers = roll->peers();
  if (peers_on(peers[0].node, peers).size() == peers.size())
    return on_a_node(std::move(gloo), std::move(roll), join_timeout, timeout);
  auto layout = layout_of(peers, roll->rank());
  return layout ? over_nodes(std::move(gloo), std::move(*layout), std::move(roll), join_timeout, timeout)
                : gloo;
}

}  // namespace lockstep::comm
