#include "lockstep/comm/shared_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/memory/node_window.h"
#include "lockstep/comm/node/call_queue.h"
#include "lockstep/comm/node/forwarding_backend.h"
#include "lockstep/comm/node/node_transport.h"
#include "lockstep/comm/node/nodes_ring.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {
namespace {

// gloo over several nodes, whose sums are made in each node's shared memory: the same bits in fewer messages.

/// All-reduces of one short, dense CPU tensor run in the order of their calls on a thread of their own; all
/// else is gloo's. Of a short one the messages cost the time, and gloo has more of them with each rank; of a
/// long one the bytes, which gloo sends while it adds.
class NodesBackend : public ForwardingBackend, public RollCalled {
 public:
  /// Of a message that is not gloo's, whatever the world; `node` has slots for it.
  static constexpr size_t kMostBytes = size_t{256} << 10;
  /// `gloo` is a Carrier. `node` is that of the own node's ranks.
  NodesBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::unique_ptr<NodeTransport> node, NodeLayout layout,
               std::shared_ptr<RollCall> roll, std::chrono::milliseconds timeout);
  const std::shared_ptr<RollCall>& shared_roll() const override { return roll_; }
  const std::string getBackendName() const override { return "shared"; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout);
  uint64_t getSequenceNumberForGroup() override { return roll_->begun(); }
  void setSequenceNumberForGroup() override {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  bool is_ours(const Tensors& tensors, const c10d::ReduceOp& op) const;
  std::exception_ptr sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                         const Reduction& reduction);

  Carrier& carrier_;
  std::unique_ptr<NodeTransport> node_;
  NodesRing ring_;
  std::shared_ptr<RollCall> roll_;
  std::atomic<std::chrono::milliseconds> timeout_;
  CallQueue queue_;  // ends before the rest does
};

using c10d::OpType;

constexpr size_t kBytesForEachRank = size_t{16} << 10;  // from there on gloo may be as quick

// What gloo sums: the same for short tensors and long ones.
bool is_gloos(at::ScalarType type, const c10d::ReduceOp& op) {
  constexpr std::array types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                at::kChar,  at::kByte,   at::kInt,  at::kLong};
  constexpr std::array ops = {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
                              c10d::ReduceOp::MAX};
  return std::find(types.begin(), types.end(), type) != types.end() &&
         std::find(ops.begin(), ops.end(), op) != ops.end();
}

NodesBackend::NodesBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::unique_ptr<NodeTransport> node,
                           NodeLayout layout, std::shared_ptr<RollCall> roll,
                           std::chrono::milliseconds timeout)
    : ForwardingBackend(gloo->getRank(), gloo->getSize(), gloo),
      carrier_(dynamic_cast<Carrier&>(*gloo)),
      node_(std::move(node)),
      ring_(node_->window(), std::move(layout)),
      roll_(std::move(roll)),
      timeout_(timeout) {}

void NodesBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  base::set_timeout(*base(), timeout);
}

bool NodesBackend::is_ours(const Tensors& tensors, const c10d::ReduceOp& op) const {
  if (tensors.size() != 1 || !tensors[0].device().is_cpu() || tensors[0].layout() != c10::kStrided)
    return false;
  const size_t most = std::min(kMostBytes, kBytesForEachRank * static_cast<size_t>(getSize()));
  return tensors[0].nbytes() <= most && is_gloos(tensors[0].scalar_type(), op);
}

NodesBackend::WorkPtr NodesBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (!is_ours(tensors, options.reduceOp)) return ForwardingBackend::allreduce(tensors, options);
  const auto type = tensors[0].scalar_type();
  const Reduction reduction = find_reduction(type, options.reduceOp, true);
  const auto limit = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  const Collective collective{op_name(OpType::ALLREDUCE), roll_->begin(OpType::ALLREDUCE), limit};
  if (roll_->compares_calls())
    carrier_.compare(call_of(OpType::ALLREDUCE, tensors, of_sum(options.reduceOp)), collective);
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp);
  const auto word = word_of(OpType::ALLREDUCE, static_cast<int>(op), -1, type, tensors[0].nbytes());
  auto work = c10::make_intrusive<QueuedWork>(getRank(), OpType::ALLREDUCE, collective.number, tensors);
  queue_.add(work, [this, collective, word, tensor = tensors[0], reduction] {
    roll_->require_alive();  // it may have died while this one waited for its turn
    return sum(collective, word, tensor, reduction);
  });
  return work;
}

// As gloo's, after all that this rank has begun.
NodesBackend::WorkPtr NodesBackend::barrier(const c10d::BarrierOptions& options) {
  if (queue_.runs_here()) {
    queue_.run_waiting();
  } else if (const auto last = queue_.newest()) {
    last->wait();
  }
  return ForwardingBackend::barrier(options);
}

std::exception_ptr NodesBackend::sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                                     const Reduction& reduction) {
  std::exception_ptr in_memory;
  const auto over_gloo = carrier_.carry(
      collective,
      [&](Messenger& messenger) {
        const at::NoGradGuard no_grad;  // it may be a parameter
        // in the order of memory, as gloo; what has gaps gloo would take for dense
        const auto flat = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
        auto* data = static_cast<std::byte*>(flat.data_ptr());
        const auto items = static_cast<size_t>(flat.numel());
        try {
          BoundedWait wait(*roll_, collective.number, collective.timeout, node_->crowded());
          node_->name_call(word);
          ring_.all_reduce(messenger, data, items, reduction, wait);
        } catch (const WaitExpired& reason) {
          in_memory = roll_->diagnose(collective, reason.cause, reason.timed_out);
          return;
        } catch (const UnlikeCalls& unlike) {
          in_memory = roll_->end_all_at(collective.number, difference_to(unlike, getRank(), word));
          return;
        }
        if (reduction.divide) reduction.divide(data, items, getSize());
        if (!flat.is_same(tensor)) tensor.copy_(flat);
      },
      [this](const std::exception_ptr& error) { queue_.abandon(*this, error); });
  return in_memory ? in_memory : over_gloo;
}

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
std::string reason_not_shared(const std::vector<Peer>& peers) {
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
  const auto all = name_late_ranks(roll, timeout, [&] {
    return exchange(*roll.store(), "nodes/why", ranks_of(roll.peers(), roll.rank()), why);
  });
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  return found == all.end() ? "" : *found;
}

// The memory of `here`, this node's ranks; null, and why not, where they share none.
std::unique_ptr<NodeTransport> open_memory(RollCall& roll, const std::string& name,
                                           const std::vector<Peer>& here, size_t slot_bytes,
                                           std::chrono::milliseconds join_timeout, std::string& why) {
  why = reason_not_shared(here);
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
    return c10::make_intrusive<TransportBackend>("shared", std::move(gloo), std::move(node), std::move(roll),
                                                 timeout, SumOrder::as_gloo,
                                                 Execution::in_the_call_or_behind);
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
