#include "lockstep/comm/shared_backend.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/shm/backend.h"
#include "lockstep/comm/shm/call_queue.h"
#include "lockstep/comm/shm/intercepted_backend.h"
#include "lockstep/comm/shm/transport.h"
#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {
namespace {

/// The ranks of a group by node: node n has the ranks from firsts[n] to firsts[n + 1] - 1.
struct NodeLayout {
  std::vector<int> firsts;  // and the world size at the end
  int own = 0;              // this rank's node

  int nodes() const { return static_cast<int>(firsts.size()) - 1; }
  int first(int node) const { return firsts[static_cast<size_t>(node)]; }
  int world() const { return firsts.back(); }
};

/// A sum over nodes with gloo's bits. The first rank of each node makes it from the slots of the node's
/// ranks. gloo's ring adds chunk c of a message in the order of the ranks c - 1, c - 2, ... c, round the
/// ring. That order goes from node to node, and each node adds all of its ranks at once. So each node sends a
/// partial sum once per node, not once per rank, and then the sums once less.
class NodesRing {
 public:
  NodesRing(const shm::Segment& segment, const NodeLayout& layout, Messenger& messenger, size_t items,
            const Reduction& reduction)
      : segment_(segment),
        layout_(layout),
        messenger_(messenger),
        items_(items),
        reduction_(reduction),
        chunk_items_(algorithms::gloo_chunk(items, reduction.item_bytes, layout.world())) {}

  /// Afterwards the sums are in the slot of the node's first rank.
  void run() {
    const int nodes = layout_.nodes(), own = layout_.own;
    const int own_first = layout_.first(own), own_last = layout_.first(own + 1) - 1;
    std::vector<std::byte> partial(bytes_of(own)), theirs;
    for (const auto& chunk : chunks_of(own)) add(partial, false, chunk, rank_before(chunk), own_first);
    for (int step = 1; step <= nodes; ++step) {
      const int block = (own + step) % nodes;
      exchange(partial, theirs, block);
      // back at its first node, the ranks behind the first one are missing
      for (const auto& chunk : chunks_of(block))
        add(partial, true, chunk, own_last, block == own ? rank_before(chunk) + 1 : own_first);
    }
    keep(partial, own);
    for (int step = 1; step < nodes; ++step) {
      const int block = (own + step) % nodes;
      exchange(partial, theirs, block);
      keep(partial, block);
    }
  }

 private:
  struct Chunk {
    int index;
    size_t begin, bytes;  // in a slot
    size_t travels;       // where it begins in the message to the next node
  };

  // The chunks whose first rank is on a node. The last chunks of a message may be short or empty.
  std::vector<Chunk> chunks_of(int node) const {
    std::vector<Chunk> chunks;
    size_t travels = 0;
    for (int first = layout_.first(node); first < layout_.first(node + 1); ++first) {
      const int index = (first + 1) % layout_.world();
      const size_t begin = std::min(items_, static_cast<size_t>(index) * chunk_items_);
      const size_t bytes = (std::min(items_, begin + chunk_items_) - begin) * reduction_.item_bytes;
      if (bytes == 0) continue;
      chunks.push_back({index, begin * reduction_.item_bytes, bytes, travels});
      travels += bytes;
    }
    return chunks;
  }

  size_t bytes_of(int node) const {
    const auto chunks = chunks_of(node);
    return chunks.empty() ? 0 : chunks.back().travels + chunks.back().bytes;
  }

  int rank_before(const Chunk& chunk) const { return (chunk.index + layout_.world() - 1) % layout_.world(); }

  // Sends `partial` to the next node and receives the chunks of another node in its place.
  void exchange(std::vector<std::byte>& partial, std::vector<std::byte>& theirs, int node) {
    const int nodes = layout_.nodes();
    theirs.resize(bytes_of(node));
    messenger_.exchange({layout_.first((layout_.own + nodes - 1) % nodes), partial},
                        {layout_.first((layout_.own + 1) % nodes), theirs});
    partial.swap(theirs);
  }

  // Adds this node's ranks from `last` down to `first` to the partial sum of other nodes.
  void add(std::vector<std::byte>& sums, bool has_some, const Chunk& chunk, int last, int first) {
    std::byte* sum = sums.data() + chunk.travels;
    sources_.clear();
    if (has_some) sources_.push_back(sum);
    for (int rank = last; rank >= first; --rank)
      sources_.push_back(segment_.slot(rank - layout_.first(layout_.own)) + chunk.begin);
    if (sources_.size() == 1 && has_some) return;
    reduction_.combine(sources_.data(), sources_.size(), sum, chunk.bytes / reduction_.item_bytes);
  }

  // Overwrites the slot, which a partial sum contains by now.
  void keep(const std::vector<std::byte>& sums, int node) {
    for (const auto& chunk : chunks_of(node))
      std::memcpy(segment_.slot(0) + chunk.begin, sums.data() + chunk.travels, chunk.bytes);
  }

  const shm::Segment& segment_;
  const NodeLayout& layout_;
  Messenger& messenger_;
  size_t items_;
  const Reduction& reduction_;
  size_t chunk_items_;
  std::vector<const std::byte*> sources_;
};

using c10d::OpType;

/// gloo over several nodes. All-reduces of one short, dense CPU tensor use each node's shared memory, in the
/// order of their calls on a thread of their own. gloo runs all other calls. The time of a short sum depends
/// on the number of messages, which in gloo grows with each rank. The time of a long sum depends on its
/// bytes, which gloo sends while it adds.
class NodesBackend : public InterceptedBackend, public MonitoredBackend {
 public:
  /// gloo sums longer tensors at any world size. The slots of `node` have this size.
  static constexpr size_t kMostBytes = size_t{256} << 10;
  /// `gloo` is a MessageRunner. `node` connects the ranks of this node.
  NodesBackend(const BackendPtr& gloo, std::unique_ptr<NodeTransport> node, NodeLayout layout,
               std::shared_ptr<PeerMonitor> monitor, std::chrono::milliseconds timeout)
      : InterceptedBackend(gloo, gloo->getRank(), gloo->getSize()),
        messages_(dynamic_cast<MessageRunner&>(*gloo)),
        node_(std::move(node)),
        layout_(std::move(layout)),
        monitor_(std::move(monitor)),
        options_(c10::make_intrusive<Options>("shared", timeout)) {}
  ~NodesBackend() override { monitor_->leave(); }  // a gloo group that died is never destroyed
  const std::shared_ptr<PeerMonitor>& shared_monitor() const override { return monitor_; }
  const std::string getBackendName() const override { return options_->backend; }
  // NOLINTBEGIN(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    base::set_timeout(*inner(), timeout);
  }
  // NOLINTEND(modernize-use-override)
  uint64_t getSequenceNumberForGroup() override { return monitor_->begun(); }
  void setSequenceNumberForGroup() override {}

 protected:
  WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) override;

 private:
  bool is_ours(const BackendCall& call, const Tensors& tensors) const;
  std::exception_ptr sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                         const Reduction& reduction);
  void sum_in(Messenger& messenger, std::byte* data, size_t items, const Reduction& reduction,
              BoundedWait& wait);

  MessageRunner& messages_;
  std::unique_ptr<NodeTransport> node_;
  NodeLayout layout_;
  std::shared_ptr<PeerMonitor> monitor_;
  c10::intrusive_ptr<Options> options_;
  CallQueue queue_;  // ends before the rest does
};

// What gloo can sum, so that short and long tensors support the same types.
bool is_gloos(at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  constexpr std::array types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                at::kChar,  at::kByte,   at::kInt,  at::kLong};
  constexpr std::array ops = {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
                              c10d::ReduceOp::MAX};
  return std::find(types.begin(), types.end(), type) != types.end() &&
         std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool NodesBackend::is_ours(const BackendCall& call, const Tensors& tensors) const {
  constexpr size_t kBytesForEachRank = size_t{16} << 10;  // above that gloo may be as fast
  if (call.type != OpType::ALLREDUCE || tensors.size() != 1 || !tensors[0].device().is_cpu() ||
      tensors[0].layout() != c10::kStrided)
    return false;
  const size_t most = std::min(kMostBytes, kBytesForEachRank * static_cast<size_t>(getSize()));
  return tensors[0].nbytes() <= most && is_gloos(tensors[0].scalar_type(), *call.reduction);
}

NodesBackend::WorkPtr NodesBackend::around(const BackendCall& call, Tensors& outputs, Tensors& inputs,
                                           InnerCall inner) {
  if (call.type == OpType::BARRIER) {  // as gloo's, after all calls that this rank has begun
    if (queue_.runs_here()) {
      queue_.run_waiting();
    } else if (const auto last = queue_.newest()) {
      last->wait();
    }
  }
  if (!is_ours(call, outputs)) return inner(outputs, inputs, call.timeout);
  const auto& tensor = outputs[0];
  const Reduction reduction = find_reduction(tensor.scalar_type(), *call.reduction, true);
  const auto limit = call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  const Collective collective{op_name(call.type), monitor_->begin(call.type), limit};
  if (monitor_->compares_calls())
    messages_.compare(call_of(call.type, outputs, details_of(call)), collective);
  const CallWord word = word_for(call, outputs);
  auto work = c10::make_intrusive<QueuedWork>(getRank(), call.type, collective.number, outputs);
  queue_.add(work, [this, collective, word, tensor, reduction] {
    monitor_->require_alive();  // the group may have died while this call was queued
    return sum(collective, word, tensor, reduction);
  });
  return work;
}

std::exception_ptr NodesBackend::sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                                     const Reduction& reduction) {
  std::exception_ptr in_memory;
  const auto over_gloo = messages_.run_messages(
      collective,
      [&](Messenger& messenger) {
        const at::NoGradGuard no_grad;  // it may be a parameter
        // in memory order, as gloo; gloo would treat a tensor with gaps as dense
        const auto flat = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
        auto* data = static_cast<std::byte*>(flat.data_ptr());
        const auto items = static_cast<size_t>(flat.numel());
        try {
          BoundedWait wait(*monitor_, collective.number, collective.timeout, node_->crowded());
          node_->segment().name_call(word);
          sum_in(messenger, data, items, reduction, wait);
        } catch (const WaitExpired& reason) {
          in_memory = monitor_->diagnose(collective, reason.cause, reason.timed_out);
          return;
        } catch (const CallMismatch& mismatch) {
          in_memory = monitor_->end_all_at(collective.number, difference_to(mismatch, getRank(), word));
          return;
        }
        if (!flat.is_same(tensor)) tensor.copy_(flat);
      },
      [this](const std::exception_ptr& error) { queue_.abandon(*this, error); });
  return in_memory ? in_memory : over_gloo;
}

void NodesBackend::sum_in(Messenger& messenger, std::byte* data, size_t items, const Reduction& reduction,
                          BoundedWait& wait) {
  auto& segment = node_->segment();
  const size_t bytes = items * reduction.item_bytes;
  segment.begin(wait);
  copy_into_slot(segment.own_slot(), data, bytes);
  segment.post();
  if (segment.rank() == 0) {
    segment.wait_all(wait);
    NodesRing(segment, layout_, messenger, items, reduction).run();
  }
  segment.post();
  segment.wait(0, wait);
  copy_in_pieces(segment.slot(0), data, bytes);
}

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

NodeRanks ranks_of(const std::vector<Peer>& peers, int own) {
  NodeRanks ranks;
  for (const auto& peer : peers) {
    if (peer.rank == own) ranks.own = static_cast<int>(ranks.ranks.size());
    ranks.ranks.push_back(peer.rank);
  }
  return ranks;
}

// Nothing if gloo's ring does not go from node to node, or if each node has only one rank.
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

// gloo notices a peer's death at its socket; shared memory needs the peer's process number.
std::string reason_not_shared(const std::vector<Peer>& peers) {
  const Peer& first = peers.front();
  for (const auto& peer : peers) {
    if (peer.pid_space != first.pid_space || peer.host != first.host)
      return format(
          "rank {} cannot see the process of rank {} (it has another PID namespace or host name), "
          "and would not notice its death",
          first.rank, peer.rank);
  }
  return "";
}

// Backends of which a group can be split.
template <class Base>
class Splitting : public Base {
 public:
  using Base::Base;
  // NOLINTBEGIN(modernize-use-override,readability-identifier-naming): of c10d::Backend, in some libtorchs
  // With a device, torch.distributed would call new_group's part of NCCL.
  bool supportsSplitting() const { return !this->getBoundDeviceId(); }
  // Null on ranks outside. The store may be the parent's connection, which would wait, too: it is cloned.
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    const auto own = std::find(ranks.begin(), ranks.end(), this->getRank());
    if (own == ranks.end()) return nullptr;
    std::vector<int64_t> in_job;
    for (const int rank : ranks)
      in_job.push_back(this->shared_monitor()->peers().at(static_cast<size_t>(rank)).rank_in_job());
    const auto part = c10::make_intrusive<c10d::ProcessGroup>(
        store->clone(), static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
    add_shared(part, in_job, {.join_timeout = options->timeout, .timeout = options->timeout});
    return part->getBackend(c10::kCPU);
  }
  // NOLINTEND(modernize-use-override,readability-identifier-naming)
};

// The first reason why the ranks of a node cannot share memory, the same on all ranks of the group.
std::string agreed(PeerMonitor& monitor, const std::string& why, std::chrono::milliseconds timeout) {
  const auto all = name_late_ranks(monitor, timeout, [&] {
    return exchange(*monitor.store(), "nodes/why", ranks_of(monitor.peers(), monitor.rank()), why);
  });
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  return found == all.end() ? "" : *found;
}

}  // namespace

BackendPtr make_shared_backend(BackendPtr gloo, std::shared_ptr<PeerMonitor> monitor,
                               std::chrono::milliseconds join_timeout, std::chrono::milliseconds timeout) {
  const auto& peers = monitor->peers();
  const int own_node = peers[static_cast<size_t>(monitor->rank())].node;
  auto here = peers;
  std::erase_if(here, [&](const Peer& peer) { return peer.node != own_node; });
  const bool one_node = here.size() == peers.size();
  auto layout = layout_of(peers, monitor->rank());
  if (!one_node && !layout) return gloo;
  std::unique_ptr<NodeTransport> node;
  std::string why = reason_not_shared(here);
  if (why.empty())
    node = open_node(*monitor, format("node/{}", own_node), ranks_of(here, monitor->rank()),
                     one_node ? slot_bytes_for(peers.size()) : NodesBackend::kMostBytes, join_timeout, why);
  if (!one_node) why = agreed(*monitor, why, join_timeout);
  if (!why.empty()) {
    if (monitor->rank() == 0)
      log::warning(format(
          "the ranks cannot share memory ({}); using gloo, which is slower but gives the same results\n  "
          "hint: make /dev/shm larger (in a container: --shm-size), and share it between all ranks of a node",
          why));
    return gloo;
  }
  if (one_node)
    return c10::make_intrusive<Splitting<TransportBackend>>("shared", std::move(gloo), std::move(node),
                                                            std::move(monitor), timeout, SumOrder::as_gloo,
                                                            Execution::in_the_call_or_behind);
  return c10::make_intrusive<Splitting<NodesBackend>>(gloo, std::move(node), std::move(*layout),
                                                      std::move(monitor), timeout);
}

void share(const ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  if (!group || group->getSize() == 1) return;
  const auto devices = group->getDeviceTypes();
  if (std::find(devices.begin(), devices.end(), at::Device(at::kCPU)) == devices.end()) return;
  auto* backend = dynamic_cast<TransportBackend*>(group->getBackend(c10::kCPU).get());
  const auto can_move = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.layout() == c10::kStrided;
  };
  if (backend && std::all_of(tensors.begin(), tensors.end(), can_move)) backend->share(tensors);
}

}  // namespace lockstep::comm
