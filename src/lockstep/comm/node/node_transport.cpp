#include "lockstep/comm/node/node_transport.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "lockstep/comm/memory/node_window.h"
#include "lockstep/launch/control_groups.h"

namespace lockstep::comm {
namespace {

// Larger slots fall out of the second-level cache, smaller ones cost a wave of flags more often.
constexpr size_t kMostSlotBytes = size_t{512} << 10;
// What a rank sums between two waves of flags inside a node. A slot is cold when a step comes back to it, so
// as little of it is used as the flags allow.
constexpr size_t kSectionBytes = size_t{64} << 10;
// Below it one wave of flags beats the second reading that it saves.
constexpr size_t kSmallBytes = size_t{16} << 10;

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

template <class Bytes>
Bytes stretch_of(Bytes all, size_t at, size_t longest) {
  const size_t begin = std::min(at, all.size());
  return all.subspan(begin, std::min(longest, all.size() - begin));
}

// The same on all ranks: their quotas may differ.
bool is_crowded(NodeWindow& window, BoundedWait& wait) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ::sched_getaffinity(0, sizeof own, &own);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const auto& mask : window.exchange(own, wait)) CPU_OR(&all, &all, &mask);
  const auto quota = launch::cpu_quota();
  const double cores = quota ? std::max(1.0, std::floor(quota->cores)) : CPU_SETSIZE;
  const bool crowded = std::min<double>(CPU_COUNT(&all), cores) < window.size();
  const auto all_say = window.exchange(static_cast<char>(crowded), wait);
  return std::any_of(all_say.begin(), all_say.end(), [](char one) { return one != 0; });
}

}  // namespace

NodeTransport::NodeTransport(NodeMemory memory, NodeRanks node, size_t slot_bytes, BoundedWait& wait)
    : window_(std::move(memory), std::move(node), slot_bytes), crowded_(is_crowded(window_, wait)) {
  if (crowded_) window_.expect_crowd();
  const auto ranks = static_cast<size_t>(window_.size());
  for (auto* places : {&sources_, &ordered_}) places->resize(ranks);
  shares_.resize(ranks);
}

void NodeTransport::write_to_slots(size_t offset) {
  outs_.clear();
  for (int rank = 0; rank < window_.size(); ++rank) outs_.push_back(window_.slot(rank) + offset);
}

// From sources_ to outs_, which lie where the part begins.
void NodeTransport::sum(const Reduction& reduction, const ReductionOrder& fold, Part part) {
  for (size_t done = 0; done < part.bytes;) {
    const size_t at = part.at + done, now = std::min(fold.end_of(at) - at, part.bytes - done);
    size_t rank = fold.first(at);
    for (auto& source : ordered_) {
      source = sources_[rank] + done;
      rank = fold.next(rank);
    }
    moved_.clear();
    for (std::byte* out : outs_) moved_.push_back(out + done);
    reduction.combine_into(ordered_.data(), ordered_.size(), moved_.data(), moved_.size(),
                           now / reduction.item_bytes);
    done += now;
  }
}

void NodeTransport::all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                               const ReductionOrder& fold, BoundedWait& wait) {
  const size_t bytes = items * reduction.item_bytes;
  if (window_.size() == 1) {
    if (out && out != in) std::memcpy(out, in, bytes);
    return;
  }
  if (all_bring(in, out, bytes, wait)) return reduce_in_place(bytes, reduction, fold, wait);
  const size_t slot = window_.slot_bytes() / reduction.item_bytes * reduction.item_bytes;
  const size_t chunk = std::min(slot, kSectionBytes * static_cast<size_t>(window_.size()));
  for (size_t at = 0; at < bytes; at += chunk) {
    const Part part{at, std::min(chunk, bytes - at)};
    std::byte* place = out ? out + at : nullptr;
    window_.begin(wait);
    part.bytes <= kSmallBytes ? reduce_small(in + at, place, part, reduction, fold, wait)
                              : reduce_large(in + at, place, part, reduction, fold, wait);
  }
}

// Everybody reads everything: one wave of flags. One's own share is still in the cache where it came from.
void NodeTransport::reduce_small(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                                 const ReductionOrder& fold, BoundedWait& wait) {
  copy_into_slot(window_.own_slot(), in, part.bytes);
  window_.post();
  if (!out) return;
  window_.wait_all(wait);
  for (int rank = 0; rank < window_.size(); ++rank)
    sources_[static_cast<size_t>(rank)] = rank == place() ? in : window_.slot(rank);
  outs_.assign(1, out);
  sum(reduction, fold, part);
}

// Each rank sums one section of all, for itself and in the others' slots: two waves. The lines of a slot go
// to the one that sums them and come back.
void NodeTransport::reduce_large(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                                 const ReductionOrder& fold, BoundedWait& wait) {
  const auto own = static_cast<size_t>(place());
  const auto [begin, bytes] = section_of(part.bytes, place(), window_.size());
  const size_t after = begin + bytes;
  std::byte* slot = window_.own_slot();
  copy_into_slot(slot, in, begin);
  copy_into_slot(slot + after, in + after, part.bytes - after);
  window_.post();
  window_.wait_all(wait);
  write_to_slots(begin);
  sources_.assign(outs_.begin(), outs_.end());
  sources_[own] = in + begin;
  if (out) outs_[own] = out + begin;
  sum(reduction, fold, {part.at + begin, bytes});
  window_.post();
  if (!out) return;
  window_.wait_all(wait);
  copy_in_pieces(slot, out, begin);
  copy_in_pieces(slot + after, out + after, part.bytes - after);
}

// A rank may bring memory of its own where others do not: a copy, or zeros for one that has joined.
bool NodeTransport::all_bring(const std::byte* in, const std::byte* out, size_t bytes, BoundedWait& wait) {
  if (bytes <= kSmallBytes || !blocks_.any()) return false;
  const auto place = in == out ? blocks_.find(in, bytes) : NodeBlocks::Place();
  const auto names = window_.exchange(place.name, wait);
  if (!place.block || std::count(names.begin(), names.end(), place.name) != window_.size()) return false;
  for (int rank = 0; rank < window_.size(); ++rank)
    shares_[static_cast<size_t>(rank)] = place.block->piece(rank) + place.offset;
  return true;
}

// One pass: each rank sums its section of all ranks' shares and writes the sums to all of them.
void NodeTransport::reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& fold,
                                    BoundedWait& wait) {
  const auto section = section_of(bytes, place(), window_.size());
  outs_ = shares_;
  for (auto& out : outs_) out += section.begin;
  sources_.assign(outs_.begin(), outs_.end());
  sum(reduction, fold, {section.begin, section.bytes});
  window_.post();
  window_.wait_all(wait);
}

void NodeTransport::sum_section_for_first(const std::vector<std::byte*>& places, size_t bytes,
                                          const Reduction& reduction, const ReductionOrder& fold) {
  if (window_.size() == 1) return;
  const auto section = section_of(bytes, place(), window_.size());
  for (size_t rank = 0; rank < places.size(); ++rank) sources_[rank] = places[rank] + section.begin;
  outs_.assign(1, places[0] + section.begin);
  sum(reduction, fold, {section.begin, section.bytes});
}

void NodeTransport::broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) {
  for (size_t at = 0; at < bytes; at += window_.slot_bytes()) {
    const size_t now = std::min(window_.slot_bytes(), bytes - at);
    window_.begin(wait);
    if (root == place()) copy_into_slot(window_.own_slot(), data + at, now);
    window_.post();
    if (root == place()) continue;
    window_.wait(root, wait);
    copy_in_pieces(window_.slot(root), data + at, now);
  }
}

void NodeTransport::all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                               BoundedWait& wait) {
  for (size_t at = 0; at < bytes; at += window_.slot_bytes()) {
    const size_t now = std::min(window_.slot_bytes(), bytes - at);
    window_.begin(wait);
    copy_into_slot(window_.own_slot(), in + at, now);
    window_.post();
    for (int rank = 0; rank < window_.size(); ++rank) {
      window_.wait(rank, wait);
      copy_in_pieces(window_.slot(rank), outs[static_cast<size_t>(rank)] + at, now);
    }
  }
}

void NodeTransport::reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                                   const Reduction& reduction, const ReductionOrder& fold, size_t at,
                                   BoundedWait& wait) {
  const size_t chunk = window_.slot_bytes() / reduction.item_bytes / ins.size();
  const auto own = static_cast<size_t>(place());
  for (size_t done = 0; done < items; done += chunk) {
    const size_t bytes = std::min(chunk, items - done) * reduction.item_bytes;
    const size_t offset = done * reduction.item_bytes;
    window_.begin(wait);
    for (size_t rank = 0; rank < ins.size(); ++rank)
      copy_into_slot(window_.own_slot() + rank * bytes, ins[rank] + offset, bytes);
    window_.post();
    window_.wait_all(wait);
    write_to_slots(own * bytes);
    sources_.assign(outs_.begin(), outs_.end());
    outs_.assign(1, out + offset);
    sum(reduction, fold, {at + offset, bytes});
  }
}

// A slot has a stretch of what its rank sends to each.
void NodeTransport::exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                             BoundedWait& wait) {
  const size_t longest = window_.slot_bytes() / static_cast<size_t>(window_.size());
  const auto at_rank = [&](int rank) { return static_cast<size_t>(rank) * longest; };
  for (size_t at = 0; at < most; at += longest) {
    window_.begin(wait);
    for (const auto& [to, bytes] : out) {
      const auto now = stretch_of(bytes, at, longest);
      copy_into_slot(window_.own_slot() + at_rank(to), now.data(), now.size());
    }
    window_.post();
    for (const auto& [from, bytes] : in) {
      const auto now = stretch_of(bytes, at, longest);
      if (now.empty()) continue;
      window_.wait(from, wait);
      copy_in_pieces(window_.slot(from) + at_rank(place()), now.data(), now.size());
    }
  }
}

void NodeTransport::barrier(BoundedWait& wait) {
  window_.begin(wait);
  window_.post();
  window_.wait_all(wait);
}

size_t slot_bytes_for(size_t ranks) {
  return std::min(kMostSlotBytes, kSectionBytes * std::max<size_t>(ranks, 2));
}

std::unique_ptr<NodeTransport> open_node(RollCall& roll, const std::string& stage, const NodeRanks& node,
                                         size_t slot_bytes, std::chrono::milliseconds timeout,
                                         std::string& why) {
  return name_late_ranks(roll, timeout, [&]() -> std::unique_ptr<NodeTransport> {
    auto memory = share_memory(*roll.store(), stage, node, NodeWindow::bytes_for(slot_bytes));
    why = memory.why;
    if (memory.pieces.empty()) return nullptr;
    BoundedWait wait(roll, 0, timeout, true);
    return std::make_unique<NodeTransport>(std::move(memory), node, slot_bytes, wait);
  });
}

}  // namespace lockstep::comm
