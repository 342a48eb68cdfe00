#include "lockstep/comm/mpi/transport.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/memory/slot_copy.h"
#include "lockstep/comm/mpi/mpi_messenger.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

// The message between two nodes, and what the ranks of a node sum between two of them.
constexpr size_t kSlotBytes = size_t{512} << 10;
// An all-gather over nodes lays one piece a rank into a slot. Small, so that no slot grows below 8,192 ranks:
// each rank of a node has two of them in shared memory.
constexpr size_t kLeastPiece = 64;

std::unique_ptr<NodeTransport> open_own_node(const MpiComms& comms, RollCall& roll,
                                             std::chrono::milliseconds timeout) {
  const NodeRanks node{comms.local_ranks, comms.local_rank};
  const size_t slot_bytes = comms.nodes == 1 ? slot_bytes_for(node.ranks.size())
                                             : std::max(kSlotBytes, comms.node_of_rank.size() * kLeastPiece);
  std::string why;
  auto opened = open_node(roll, format("node/{}", comms.node_index), node, slot_bytes, timeout, why);
  if (opened) return opened;
  throw Error(format("a rank needs {} KiB of shared memory, and this node gives none: {}",
                     NodeWindow::bytes_for(slot_bytes) >> 10, why),
              "backend mpi", "make /dev/shm larger (a container: --shm-size), or set launch.backend: gloo")
      .of(Code::shared_memory);
}

}  // namespace

MpiTransport::MpiTransport(mpi::Comm world, RollCall& roll, std::chrono::milliseconds join_timeout)
    : roll_(roll),
      comms_(MpiComms::make(world)),
      node_(open_own_node(comms_, roll, join_timeout)),
      window_(node_->window()),
      link_(comms_, *mpi_) {}

void MpiTransport::all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                              const Fold& fold, Patience& patience) {
  if (!link_.needed()) return node_->all_reduce(in, out, items, reduction, fold, patience);
  const size_t bytes = items * reduction.item_bytes;
  if (node_->all_bring(in, out, bytes, patience)) return reduce_in_place(bytes, reduction, fold, patience);
  const size_t chunk = chunk_bytes(reduction);
  for (size_t at = 0; at < bytes; at += chunk)
    reduce_chunk(in + at, out ? out + at : nullptr, std::min(chunk, bytes - at), reduction, fold, patience);
}

// The ranks of the node sum it in sections into the slot of the first, which then speaks with other nodes.
void MpiTransport::reduce_chunk(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                                const Fold& fold, Patience& patience) {
  window_.begin(patience);
  copy_into_slot(window_.own_slot(), in, bytes);
  window_.post();
  std::vector<std::byte*> slots;
  for (int rank = 0; rank < window_.size(); ++rank) slots.push_back(window_.slot(rank));
  sum_for_leader(slots, bytes, reduction, fold, patience);
  if (is_leader()) link_.all_reduce(window_.own_slot(), bytes / reduction.item_bytes, reduction, patience);
  share_from_leader(patience);
  if (out) copy_in_pieces(window_.slot(0), out, bytes);
}

// After a wave that says that all is there; ends with one that the first rank has waited for.
void MpiTransport::sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes,
                                  const Reduction& reduction, const Fold& fold, Patience& patience) {
  window_.wait_all(patience);
  node_->sum_section_for_first(shares, bytes, reduction, fold);
  window_.post();
  if (is_leader()) window_.wait_all(patience);
}

// In the steps of reduce_chunk between nodes: another node may not bring a block.
void MpiTransport::reduce_in_place(size_t bytes, const Reduction& reduction, const Fold& fold,
                                   Patience& patience) {
  const auto shares = node_->shares();
  sum_for_leader(shares, bytes, reduction, fold, patience);
  const size_t chunk = chunk_bytes(reduction);
  for (size_t at = 0; is_leader() && at < bytes; at += chunk) {
    link_.all_reduce(shares[0] + at, std::min(chunk, bytes - at) / reduction.item_bytes, reduction, patience);
  }
  share_from_leader(patience);
  if (!is_leader()) copy_in_pieces(shares[0], shares[static_cast<size_t>(window_.rank())], bytes);
  window_.post();
  if (is_leader()) window_.wait_all(patience);  // else its share would change while others read it
}

size_t MpiTransport::chunk_bytes(const Reduction& reduction) const {
  return window_.slot_bytes() / reduction.item_bytes * reduction.item_bytes;
}

// The second wave of an operation over nodes: the first rank's slot holds the result.
void MpiTransport::share_from_leader(Patience& patience) {
  window_.post();
  window_.wait(0, patience);
}

void MpiTransport::broadcast(std::byte* data, size_t bytes, int root, Patience& patience) {
  const int root_node = comms_.node_of_rank[static_cast<size_t>(root)];
  const auto found = std::find(comms_.local_ranks.begin(), comms_.local_ranks.end(), root);
  const bool here = found != comms_.local_ranks.end();
  const int local_root = here ? static_cast<int>(found - comms_.local_ranks.begin()) : 0;
  if (!link_.needed()) return node_->broadcast(data, bytes, local_root, patience);
  const bool is_root = here && local_root == comms_.local_rank;
  for (size_t at = 0; at < bytes; at += window_.slot_bytes()) {
    const size_t now = std::min(window_.slot_bytes(), bytes - at);
    window_.begin(patience);
    if (is_root) copy_into_slot(window_.own_slot(), data + at, now);
    window_.post();
    if (is_leader() && here && !is_root) {
      window_.wait(local_root, patience);
      std::memcpy(window_.own_slot(), window_.slot(local_root), now);
    }
    if (is_leader()) link_.broadcast(window_.own_slot(), now, root_node, patience);
    share_from_leader(patience);
    if (!is_root) copy_in_pieces(window_.slot(0), data + at, now);
  }
}

void MpiTransport::all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                              Patience& patience) {
  if (!link_.needed()) return node_->all_gather(in, bytes, outs, patience);
  const size_t chunk = window_.slot_bytes() / outs.size();
  for (size_t at = 0; at < bytes; at += chunk) {
    const size_t now = std::min(chunk, bytes - at);
    window_.begin(patience);
    copy_into_slot(window_.own_slot(), in + at, now);
    window_.post();
    if (is_leader()) {
      window_.wait_all(patience);
      scratch_.resize(now * static_cast<size_t>(window_.size()));
      for (int rank = 0; rank < window_.size(); ++rank)
        std::memcpy(scratch_.data() + static_cast<size_t>(rank) * now, window_.slot(rank), now);
      link_.all_gather(scratch_.data(), now, window_.own_slot(), patience);
    }
    share_from_leader(patience);
    const std::byte* piece = window_.slot(0);
    for (const int rank : comms_.node_order) {
      std::memcpy(outs[static_cast<size_t>(rank)] + at, piece, now);
      piece += now;
    }
  }
}

void MpiTransport::reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                                  const Reduction& reduction, const Fold& fold, size_t at,
                                  Patience& patience) {
  if (!link_.needed()) return node_->reduce_scatter(ins, out, items, reduction, fold, at, patience);
  const size_t chunk = window_.slot_bytes() / reduction.item_bytes / ins.size();
  std::vector<std::byte> packed(chunk * ins.size() * reduction.item_bytes);
  const int own = own_rank();
  for (size_t done = 0; done < items; done += chunk) {
    const size_t bytes = std::min(chunk, items - done) * reduction.item_bytes;
    const size_t offset = done * reduction.item_bytes;
    for (size_t rank = 0; rank < ins.size(); ++rank)
      std::memcpy(packed.data() + rank * bytes, ins[rank] + offset, bytes);
    all_reduce(packed.data(), packed.data(), bytes / reduction.item_bytes * ins.size(), reduction, fold,
               patience);
    std::memcpy(out + offset, packed.data() + static_cast<size_t>(own) * bytes, bytes);
  }
}

// Within a node its memory compares the calls.
void MpiTransport::require_same_call(Patience& patience) {
  std::vector<CallWord> calls(comms_.node_of_rank.size());
  std::vector<std::byte*> places;
  for (auto& call : calls) places.push_back(reinterpret_cast<std::byte*>(&call));
  all_gather(reinterpret_cast<const std::byte*>(&call_), sizeof call_, places, patience);
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (calls[rank] != call_) throw UnlikeCalls{static_cast<int>(rank), calls[rank]};
}

void MpiTransport::exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                            Patience& patience) {
  if (!link_.needed()) return node_->exchange(out, in, most, patience);
  require_same_call(patience);
  MpiMessenger(comms_.all, kExchangeTag, *mpi_, roll_, patience).exchange(out, in);
}

void MpiTransport::barrier(Patience& patience) {
  if (!link_.needed()) return node_->barrier(patience);
  window_.begin(patience);
  window_.post();
  if (is_leader()) {
    window_.wait_all(patience);
    link_.barrier(patience);
  }
  share_from_leader(patience);
}

}  // namespace lockstep::comm
