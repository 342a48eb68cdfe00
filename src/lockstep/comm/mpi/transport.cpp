#include "lockstep/comm/mpi/transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/comm/mpi/slot_copy.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

// Larger slots fall out of the second-level cache, smaller ones cost a wave of flags more often.
constexpr size_t kSlotBytes = size_t{512} << 10;
// What a rank sums between two waves of flags inside a node. A slot is cold when a step comes back to it, so
// as little of it is used as the flags allow.
constexpr size_t kSectionBytes = size_t{64} << 10;
// An all-gather over nodes lays one piece a rank into a slot. Small, so that no slot grows below 8,192 ranks:
// each rank of a node has two of them in shared memory.
constexpr size_t kLeastPiece = 64;
// Below it one wave of flags beats the second reading that it saves.
constexpr size_t kSmallBytes = size_t{16} << 10;

size_t slot_bytes_for(const MpiComms& comms) {
  return std::max(kSlotBytes, comms.node_of_rank.size() * kLeastPiece);
}

std::vector<const std::byte*> to_read(const std::vector<std::byte*>& places) {
  return {places.begin(), places.end()};
}

struct Section {
  size_t begin = 0;
  size_t bytes = 0;
};

// Rank r of n sums this part of a message. Two cache lines: processors fetch them in pairs.
Section section_of(size_t bytes, int rank, int ranks) {
  constexpr size_t kLines = 128;
  const auto parts = static_cast<size_t>(ranks) * kLines;
  const size_t each = (bytes + parts - 1) / parts * kLines;
  const size_t begin = std::min(bytes, each * static_cast<size_t>(rank));
  return {begin, std::min(each, bytes - begin)};
}

// Piece by piece: see kPiece.
void copy(const Section& section, const std::byte* from, std::byte* to) {
  for (size_t at = 0; at < section.bytes; at += kPiece) {
    const size_t place = section.begin + at;
    std::memcpy(to + place, from + place, std::min(kPiece, section.bytes - at));
  }
}

void sum_section(const Reduction& reduction, const std::vector<const std::byte*>& sources,
                 const Section& section, std::vector<std::byte*> outs) {
  std::vector<const std::byte*> places;
  for (const std::byte* source : sources) places.push_back(source + section.begin);
  for (std::byte*& out : outs) out += section.begin;
  reduction.combine_into(places.data(), places.size(), outs.data(), outs.size(),
                         section.bytes / reduction.item_bytes);
}

}  // namespace

MpiTransport::MpiTransport(mpi::Comm world)
    : comms_(MpiComms::make(world)),
      window_(comms_, slot_bytes_for(comms_)),
      link_(comms_, *mpi_),
      crowded_(is_crowded(comms_.node)) {}

std::vector<std::byte*> MpiTransport::slots(size_t offset) const {
  std::vector<std::byte*> all;
  for (int rank = 0; rank < window_.size(); ++rank) all.push_back(window_.slot(rank) + offset);
  return all;
}

void MpiTransport::all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                              Patience& patience) {
  const size_t bytes = items * reduction.item_bytes;
  if (comms_.node_of_rank.size() == 1) {
    if (out && out != in) std::memcpy(out, in, bytes);
    return;
  }
  if (bytes > kSmallBytes && blocks_.any()) {
    // a rank may bring memory of its own where others do not: a copy, or zeros for one that has joined
    const auto place = in == out ? blocks_.find(in, bytes) : NodeBlocks::Place();
    if (all_bring(place, patience)) return reduce_in_place(place, bytes, reduction, patience);
  }
  const size_t in_node = kSectionBytes * static_cast<size_t>(window_.size());
  const size_t chunk = std::min(chunk_bytes(reduction), link_.needed() ? bytes : in_node);
  for (size_t at = 0; at < bytes; at += chunk)
    all_reduce_chunk(in + at, out ? out + at : nullptr, std::min(chunk, bytes - at), reduction, patience);
}

void MpiTransport::all_reduce_chunk(const std::byte* in, std::byte* out, size_t bytes,
                                    const Reduction& reduction, Patience& patience) {
  window_.begin(patience);
  if (link_.needed()) return reduce_over_nodes(in, out, bytes, reduction, patience);
  if (bytes <= kSmallBytes) return reduce_small(in, out, bytes, reduction, patience);
  reduce_large(in, out, bytes, reduction, patience);
}

// Everybody reads everything: one wave of flags. One's own share is still in the cache where it came from.
void MpiTransport::reduce_small(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                                Patience& patience) {
  copy_into_slot(window_.own_slot(), in, bytes);
  window_.post();
  if (!out) return;
  window_.wait_all(patience);
  auto sources = to_read(slots());
  sources[static_cast<size_t>(window_.rank())] = in;
  reduction.combine(sources.data(), sources.size(), out, bytes / reduction.item_bytes);
}

// Each rank sums one section of all, for itself and in the others' slots: two waves. The lines of a slot go
// to the one that sums them and come back.
void MpiTransport::reduce_large(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                                Patience& patience) {
  const int own = window_.rank();
  const Section section = section_of(bytes, own, window_.size());
  const size_t after = section.begin + section.bytes;
  std::byte* slot = window_.own_slot();
  copy_into_slot(slot, in, section.begin);
  copy_into_slot(slot + after, in + after, bytes - after);
  window_.post();
  window_.wait_all(patience);
  auto outs = slots();
  auto sources = to_read(outs);
  sources[static_cast<size_t>(own)] = in;
  if (out) outs[static_cast<size_t>(own)] = out;
  sum_section(reduction, sources, section, outs);
  window_.post();
  if (!out) return;
  window_.wait_all(patience);
  copy({0, section.begin}, slot, out);
  copy({after, bytes - after}, slot, out);
}

// The ranks of the node sum it in sections into the slot of the first, which then speaks with other nodes.
void MpiTransport::reduce_over_nodes(const std::byte* in, std::byte* out, size_t bytes,
                                     const Reduction& reduction, Patience& patience) {
  copy_into_slot(window_.own_slot(), in, bytes);
  window_.post();
  sum_for_leader(slots(), bytes, reduction, patience);
  if (is_leader()) link_.all_reduce(window_.own_slot(), bytes / reduction.item_bytes, reduction, patience);
  share_from_leader(patience);
  if (out) copy({0, bytes}, window_.slot(0), out);
}

// After a wave that says that all is there; ends with one that the first rank has waited for.
void MpiTransport::sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes,
                                  const Reduction& reduction, Patience& patience) {
  window_.wait_all(patience);
  if (window_.size() > 1) {
    sum_section(reduction, to_read(shares), section_of(bytes, window_.rank(), window_.size()), {shares[0]});
  }
  window_.post();
  if (is_leader()) window_.wait_all(patience);
}

bool MpiTransport::all_bring(const NodeBlocks::Place& place, Patience& patience) {
  const auto names = window_.exchange(place.name, patience);
  return place.block && std::count(names.begin(), names.end(), place.name) == window_.size();
}

// One pass: each rank sums its section of all ranks' shares and writes the sums to all of them.
void MpiTransport::reduce_in_place(const NodeBlocks::Place& place, size_t bytes, const Reduction& reduction,
                                   Patience& patience) {
  std::vector<std::byte*> shares;
  for (int rank = 0; rank < window_.size(); ++rank) shares.push_back(place.block->piece(rank) + place.offset);
  if (link_.needed()) return reduce_in_place_over_nodes(shares, bytes, reduction, patience);
  sum_section(reduction, to_read(shares), section_of(bytes, window_.rank(), window_.size()), shares);
  window_.post();
  window_.wait_all(patience);
}

// In the steps of reduce_over_nodes between nodes: another node may not bring a block.
void MpiTransport::reduce_in_place_over_nodes(const std::vector<std::byte*>& shares, size_t bytes,
                                              const Reduction& reduction, Patience& patience) {
  sum_for_leader(shares, bytes, reduction, patience);
  const size_t chunk = chunk_bytes(reduction);
  for (size_t at = 0; is_leader() && at < bytes; at += chunk) {
    link_.all_reduce(shares[0] + at, std::min(chunk, bytes - at) / reduction.item_bytes, reduction, patience);
  }
  share_from_leader(patience);
  if (!is_leader()) copy({0, bytes}, shares[0], shares[static_cast<size_t>(window_.rank())]);
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
  const bool is_root = here && local_root == comms_.local_rank;
  for (size_t at = 0; at < bytes; at += window_.slot_bytes()) {
    const size_t now = std::min(window_.slot_bytes(), bytes - at);
    window_.begin(patience);
    if (is_root) copy_into_slot(window_.own_slot(), data + at, now);
    window_.post();
    if (here && !is_root && (is_leader() || !link_.needed())) window_.wait(local_root, patience);
    if (link_.needed()) {
      if (is_leader() && here && !is_root) std::memcpy(window_.own_slot(), window_.slot(local_root), now);
      if (is_leader()) link_.broadcast(window_.own_slot(), now, root_node, patience);
      share_from_leader(patience);
    }
    if (!is_root) copy({0, now}, window_.slot(link_.needed() ? 0 : local_root), data + at);
  }
}

void MpiTransport::all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                              Patience& patience) {
  const size_t chunk = link_.needed() ? window_.slot_bytes() / outs.size() : window_.slot_bytes();
  for (size_t at = 0; at < bytes; at += chunk) {
    const size_t now = std::min(chunk, bytes - at);
    window_.begin(patience);
    copy_into_slot(window_.own_slot(), in + at, now);
    window_.post();
    link_.needed() ? gather_over_nodes(now, at, outs, patience) : gather_in_node(now, at, outs, patience);
  }
}

void MpiTransport::gather_in_node(size_t bytes, size_t at, const std::vector<std::byte*>& outs,
                                  Patience& patience) {
  for (int rank = 0; rank < window_.size(); ++rank) {
    window_.wait(rank, patience);
    copy({0, bytes}, window_.slot(rank),
         outs[static_cast<size_t>(comms_.local_ranks[static_cast<size_t>(rank)])] + at);
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
      copy_into_slot(target + rank * bytes, ins[rank] + offset, bytes);
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
