#include "lockstep/comm/shared_backend.h"

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/node/node_transport.h"

namespace lockstep::comm {
namespace {

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

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<RollCall> roll,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout) {
  NodeRanks node{.ranks = {}, .own = roll->rank()};
  for (const auto& peer : roll->peers()) node.ranks.push_back(peer.rank);
  std::string why = why_apart(roll->peers());
  auto transport = why.empty()
                       ? open_node(*roll, "node", node, slot_bytes_for(node.ranks.size()), join_timeout, why)
                       : nullptr;
  if (transport) {
    return c10::make_intrusive<InlineBackend>("shared", std::move(gloo), std::move(transport),
                                              std::move(roll), timeout, SumOrder::as_gloo,
                                              Runs::in_the_call_or_behind);
  }
  if (roll->rank() == 0)
    log::warning(
        format("the ranks share no memory, so sums go over sockets (gloo), slower and to the same "
               "bits: {}\n  to do: make /dev/shm larger (a container: --shm-size), and the same one "
               "for all ranks of a node",
               why));
  return gloo;
}

}  // namespace lockstep::comm
