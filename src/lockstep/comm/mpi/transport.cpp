#include "lockstep/comm/mpi/transport.h"

#include <algorithm>
#include <cstring>

#include "lockstep/launch/mpi.h"

namespace lockstep::comm {
namespace {

// Larger slots fall out of the second-level cache.
constexpr size_t kSlotBytes = size_t{256} << 10;
// An all-gather over nodes lays one piece a rank into a slot. Small, so that no slot grows below 4,096 ranks:
// each rank of a node has two of them in shared memory.
constexpr size_t kLeastPiece = 64;
// Below it one wave of flags beats the second reading that it saves.
constexpr size_t kSmallBytes = size_t{16} << 10;

size_t slot_bytes_for(const MpiComms& comms) {
  return std::max(kSlotBytes, comms.node_of_rank.size() * kLeastPiece);
}

struct Section {
  size_t begin = 0;
  size_t items = 0;
};

// Rank r of n sums this part of a message.
Section section_of(size_t items, int rank, int ranks) {
  const size_t each = (items + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks);
  const size_t begin = std::min(items, each * static_cast<size_t>(rank));
  return {begin, std::min(each, items - begin)};
}

}  // namespace

MpiTransport::MpiTransport(mpi::Comm world)
    : comms_(MpiComms::make(world)),
      window_(comms_, slot_bytes_for(comms_)),
      link_(comms_, *mpi_),
      crowded_(is_crowded(comms_.node)) {}

std::vector<const std::byte*> MpiTransport::slots(size_t offset) const {
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < window_.size(); ++rank) sources.push_back(window_.slot(rank) + offset);
  return sources;
}

void MpiTransport::all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                              Patience& patience) {
  const size_t chunk = window_.slot_bytes() / reduction.item_bytes;
  for (size_t at = 0; at < items; at += chunk) {
    const size_t now = std::min(chunk, items - at);
    const size_t offset = at * reduction.item_bytes;
    window_.begin(patience);
    std::memcpy(window_.own_slot(), in + offset, now * reduction.item_bytes);
    window_.post();
    std::byte* target = out ? out + offset : nullptr;
    if (link_.needed()) {
      reduce_over_nodes(target, now, reduction, patience);
    } else if (window_.size() <= 2 || now * reduction.item_bytes <= kSmallBytes) {
      reduce_small(in + offset, target, now, reduction, patience);
    } else {
      reduce_large(target, now, reduction, patience);
    }
  }
}

// Everybody reads everything: one wave of flags. One's own share is still in the cache where it came from.
void MpiTransport::reduce_small(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                                Patience& patience) {
  if (!out) return;
  window_.wait_all(patience);
  auto sources = slots();
  sources[static_cast<size_t>(window_.rank())] = in;
  reduction.combine(sources.data(), sources.size(), out, items);
}

// Each rank sums one section into its own slot, then everybody collects the sections: two waves.
void MpiTransport::reduce_large(std::byte* out, size_t items, const Reduction& reduction,
                                Patience& patience) {
  const Section own = section_of(items, window_.rank(), window_.size());
  const size_t offset = own.begin * reduction.item_bytes;
  window_.wait_all(patience);
  reduction.combine(slots(offset).data(), static_cast<size_t>(window_.size()), window_.own_slot() + offset,
                    own.items);
  window_.post();
  if (!out) return;
  window_.wait_all(patience);
  for (int rank = 0; rank < window_.size(); ++rank) {
    const Section part = section_of(items, rank, window_.size());
    const size_t from = part.begin * reduction.item_bytes;
    std::memcpy(out + from, window_.slot(rank) + from, part.items * reduction.item_bytes);
  }
}

void MpiTransport::reduce_over_nodes(std::byte* out, size_t items, const Reduction& reduction,
                                     Patience& patience) {
  if (is_leader()) {
    window_.wait_all(patience);
    reduction.combine(slots().data(), static_cast<size_t>(window_.size()), window_.own_slot(), items);
    link_.all_reduce(window_.own_slot(), items, reduction, patience);
  }
  share_from_leader(patience);
  if (out) std::memcpy(out, window_.slot(0), items * reduction.item_bytes);
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
  const bool is_root = here && local_root == comms_.local_rank;
  for (size_t at = 0; at < bytes; at += window_.slot_bytes()) {
    const size_t now = std::min(window_.slot_bytes(), bytes - at);
    window_.begin(patience);
    if (is_root) std::memcpy(window_.own_slot(), data + at, now);
    window_.post();
    if (here && !is_root && (is_leader() || !link_.needed())) window_.wait(local_root, patience);
    if (link_.needed()) {
      if (is_leader() && here && !is_root) std::memcpy(window_.own_slot(), window_.slot(local_root), now);
      if (is_leader()) link_.broadcast(window_.own_slot(), now, root_node, patience);
      share_from_leader(patience);
    }
    if (!is_root) std::memcpy(data + at, window_.slot(link_.needed() ? 0 : local_root), now);
  }
}

void MpiTransport::all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                              Patience& patience) {
  const size_t chunk = link_.needed() ? window_.slot_bytes() / outs.size() : window_.slot_bytes();
  for (size_t at = 0; at < bytes; at += chunk) {
    const size_t now = std::min(chunk, bytes - at);
    window_.begin(patience);
    std::memcpy(window_.own_slot(), in + at, now);
    window_.post();
    link_.needed() ? gather_over_nodes(now, at, outs, patience) : gather_in_node(now, at, outs, patience);
  }
}

void MpiTransport::gather_in_node(size_t bytes, size_t at, const std::vector<std::byte*>& outs,
                                  Patience& patience) {
  for (int rank = 0; rank < window_.size(); ++rank) {
    window_.wait(rank, patience);
    std::memcpy(outs[static_cast<size_t>(comms_.local_ranks[static_cast<size_t>(rank)])] + at,
                window_.slot(rank), bytes);
  }
}

void MpiTransport::gather_over_nodes(size_t bytes, size_t at, const std::vector<std::byte*>& outs,
                                     Patience& patience) {
  if (is_leader()) {
    window_.wait_all(patience);
    scratch_.resize(bytes * static_cast<size_t>(window_.size()));
    for (int rank = 0; rank < window_.size(); ++rank) {
      std::memcpy(scratch_.data() + static_cast<size_t>(rank) * bytes, window_.slot(rank), bytes);
    }
    link_.all_gather(scratch_.data(), bytes, window_.own_slot(), patience);
  }
  share_from_leader(patience);
  const std::byte* piece = window_.slot(0);
  for (const int rank : comms_.node_order) {
    std::memcpy(outs[static_cast<size_t>(rank)] + at, piece, bytes);
    piece += bytes;
  }
}

void MpiTransport::reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                                  const Reduction& reduction, Patience& patience) {
  const size_t chunk = window_.slot_bytes() / reduction.item_bytes / ins.size();
  std::vector<std::byte> packed(link_.needed() ? chunk * ins.size() * reduction.item_bytes : 0);
  int own = 0;
  launch::check_mpi(mpi::calls().comm_rank(comms_.all, &own), "MPI_Comm_rank");
  for (size_t at = 0; at < items; at += chunk) {
    const size_t bytes = std::min(chunk, items - at) * reduction.item_bytes;
    const size_t offset = at * reduction.item_bytes;
    if (!link_.needed()) window_.begin(patience);
    std::byte* target = link_.needed() ? packed.data() : window_.own_slot();
    for (size_t rank = 0; rank < ins.size(); ++rank)
      std::memcpy(target + rank * bytes, ins[rank] + offset, bytes);
    const size_t own_part = static_cast<size_t>(own) * bytes;
    if (link_.needed()) {
      all_reduce(packed.data(), packed.data(), bytes / reduction.item_bytes * ins.size(), reduction,
                 patience);
      std::memcpy(out + offset, packed.data() + own_part, bytes);
      continue;
    }
    window_.post();
    window_.wait_all(patience);
    reduction.combine(slots(own_part).data(), ins.size(), out + offset, bytes / reduction.item_bytes);
  }
}

void MpiTransport::barrier(Patience& patience) {
  window_.begin(patience);
  window_.post();
  if (!link_.needed()) return window_.wait_all(patience);
  if (is_leader()) {
    window_.wait_all(patience);
    link_.barrier(patience);
  }
  share_from_leader(patience);
}

}  // namespace lockstep::comm
