#include "lockstep/comm/shared_backend.h"

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/node/node_transport.h"

namespace lockstep::comm {

c10::intrusive_ptr<c10d::Backend> make_shared_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                      std::shared_ptr<RollCall> roll,
                                                      std::chrono::milliseconds join_timeout,
                                                      std::chrono::milliseconds timeout) {
  NodeRanks node{.ranks = {}, .own = roll->rank()};
  for (const auto& peer : roll->peers()) node.ranks.push_back(peer.rank);
  std::string why;
  auto transport = open_node(*roll, "node", node, slot_bytes_for(node.ranks.size()), join_timeout, why);
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
