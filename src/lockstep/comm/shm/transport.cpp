#include "lockstep/comm/shm/transport.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/control_groups.h"

namespace lockstep::comm {
namespace {

// Larger slots do not fit into the second-level cache; smaller ones need more waves of posts.
constexpr size_t kMostSlotBytes = size_t{512} << 10;
// What a rank sums between two waves of posts inside a node. A slot is cold at the next step, so this uses
// only as much of it as the cost of the posts allows.
constexpr size_t kSectionBytes = size_t{64} << 10;
// Below this size a wave of posts costs more than reading all slots.
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

// The same on all ranks, although their quotas may differ.
bool is_crowded(shm::Segment& segment, BoundedWait& wait) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ::sched_getaffinity(0, sizeof own, &own);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const auto& mask : segment.exchange(own, wait)) CPU_OR(&all, &all, &mask);
  const auto quota = launch::cpu_quota();
  const double cores = quota ? std::max(1.0, std::floor(quota->cores)) : CPU_SETSIZE;
  const bool crowded = std::min<double>(CPU_COUNT(&all), cores) < segment.size();
  const auto all_say = segment.exchange(static_cast<char>(crowded), wait);
  return std::any_of(all_say.begin(), all_say.end(), [](char one) { return one != 0; });
}

}  // namespace

NodeTransport::NodeTransport(shm::Block block, const NodeRanks& node, size_t slot_bytes, BoundedWait& wait)
    : node_(node), segment_(std::move(block), node, slot_bytes), crowded_(is_crowded(segment_, wait)) {
  if (crowded_) segment_.expect_crowd();
  const auto ranks = static_cast<size_t>(segment_.size());
  for (auto* places : {&sources_, &ordered_}) places->resize(ranks);
  shares_.resize(ranks);
}

void NodeTransport::write_to_slots(size_t offset) {
  outs_.clear();
  for (int rank = 0; rank < segment_.size(); ++rank) outs_.push_back(segment_.slot(rank) + offset);
}

// From sources_ to outs_, which point to the begin of the part.
void NodeTransport::sum(const Reduction& reduction, const ReductionOrder& order, Part part) {
  for (size_t done = 0; done < part.bytes;) {
    const size_t at = part.at + done, now = std::min(order.end_of(at) - at, part.bytes - done);
    size_t rank = order.first(at);
    for (auto& source : ordered_) {
      source = sources_[rank] + done;
      rank = order.next(rank);
    }
    moved_.clear();
    for (std::byte* out : outs_) moved_.push_back(out + done);
    reduction.combine_into(ordered_.data(), ordered_.size(), moved_.data(), moved_.size(),
                           now / reduction.item_bytes);
    done += now;
  }
}

void NodeTransport::all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                               const ReductionOrder& order, BoundedWait& wait) {
  const size_t bytes = items * reduction.item_bytes;
  if (segment_.size() == 1) {
    if (out && out != in) std::memcpy(out, in, bytes);
    return;
  }
  if (all_bring(in, out, bytes, wait)) return reduce_in_place(bytes, reduction, order, wait);
  const size_t slot = segment_.slot_bytes() / reduction.item_bytes * reduction.item_bytes;
  const size_t chunk = std::min(slot, kSectionBytes * static_cast<size_t>(segment_.size()));
  for (size_t at = 0; at < bytes; at += chunk) {
    const Part part{at, std::min(chunk, bytes - at)};
    std::byte* place = out ? out + at : nullptr;
    segment_.begin(wait);
    part.bytes <= kSmallBytes ? reduce_small(in + at, place, part, reduction, order, wait)
                              : reduce_large(in + at, place, part, reduction, order, wait);
  }
}

// Everybody reads everything: one wave of flags. One's own share is still in the cache where it came from.
void NodeTransport::reduce_small(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                                 const ReductionOrder& order, BoundedWait& wait) {
  copy_into_slot(segment_.own_slot(), in, part.bytes);
  segment_.post();
  if (!out) return;
  segment_.wait_all(wait);
  for (int rank = 0; rank < segment_.size(); ++rank)
    sources_[static_cast<size_t>(rank)] = rank == place() ? in : segment_.slot(rank);
  outs_.assign(1, out);
  sum(reduction, order, part);
}

// Each rank sums one section of all, for itself and in the others' slots: two waves. The lines of a slot go
// to the one that sums them and come back.
void NodeTransport::reduce_large(const std::byte* in, std::byte* out, Part part, const Reduction& reduction,
                                 const ReductionOrder& order, BoundedWait& wait) {
  const auto own = static_cast<size_t>(place());
  const auto [begin, bytes] = section_of(part.bytes, place(), segment_.size());
  const size_t after = begin + bytes;
  std::byte* slot = segment_.own_slot();
  copy_into_slot(slot, in, begin);
  copy_into_slot(slot + after, in + after, part.bytes - after);
  segment_.post();
  segment_.wait_all(wait);
  write_to_slots(begin);
  sources_.assign(outs_.begin(), outs_.end());
  sources_[own] = in + begin;
  if (out) outs_[own] = out + begin;
  sum(reduction, order, {part.at + begin, bytes});
  segment_.post();
  if (!out) return;
  segment_.wait_all(wait);
  copy_in_pieces(slot, out, begin);
  copy_in_pieces(slot + after, out + after, part.bytes - after);
}

// A rank may pass other memory than the others: a copy, or zeros for a joined rank.
bool NodeTransport::all_bring(const std::byte* in, const std::byte* out, size_t bytes, BoundedWait& wait) {
  if (bytes <= kSmallBytes || !blocks_.any()) return false;
  const auto place = in == out ? blocks_.find(in, bytes) : shm::TensorBlocks::Place();
  const auto names = segment_.exchange(place.name, wait);
  if (!place.block || std::count(names.begin(), names.end(), place.name) != segment_.size()) return false;
  for (int rank = 0; rank < segment_.size(); ++rank)
    shares_[static_cast<size_t>(rank)] = place.block->piece(rank) + place.offset;
  return true;
}

// One pass: each rank sums its section of all ranks' shares and writes the sums to all of them.
void NodeTransport::reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& order,
                                    BoundedWait& wait) {
  const auto section = section_of(bytes, place(), segment_.size());
  outs_ = shares_;
  for (auto& out : outs_) out += section.begin;
  sources_.assign(outs_.begin(), outs_.end());
  sum(reduction, order, {section.begin, section.bytes});
  segment_.post();
  segment_.wait_all(wait);
}

void NodeTransport::sum_section_for_first(const std::vector<std::byte*>& places, size_t bytes,
                                          const Reduction& reduction, const ReductionOrder& order) {
  if (segment_.size() == 1) return;
  const auto section = section_of(bytes, place(), segment_.size());
  for (size_t rank = 0; rank < places.size(); ++rank) sources_[rank] = places[rank] + section.begin;
  outs_.assign(1, places[0] + section.begin);
  sum(reduction, order, {section.begin, section.bytes});
}

void NodeTransport::broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) {
  for (size_t at = 0; at < bytes; at += segment_.slot_bytes()) {
    const size_t now = std::min(segment_.slot_bytes(), bytes - at);
    segment_.begin(wait);
    if (root == place()) copy_into_slot(segment_.own_slot(), data + at, now);
    segment_.post();
    if (root == place()) continue;
    segment_.wait(root, wait);
    copy_in_pieces(segment_.slot(root), data + at, now);
  }
}

void NodeTransport::all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                               BoundedWait& wait) {
  for (size_t at = 0; at < bytes; at += segment_.slot_bytes()) {
    const size_t now = std::min(segment_.slot_bytes(), bytes - at);
    segment_.begin(wait);
    copy_into_slot(segment_.own_slot(), in + at, now);
    segment_.post();
    for (int rank = 0; rank < segment_.size(); ++rank) {
      segment_.wait(rank, wait);
      copy_in_pieces(segment_.slot(rank), outs[static_cast<size_t>(rank)] + at, now);
    }
  }
}

void NodeTransport::reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                                   const Reduction& reduction, const ReductionOrder& order, size_t at,
                                   BoundedWait& wait) {
  const size_t chunk = segment_.slot_bytes() / reduction.item_bytes / ins.size();
  const auto own = static_cast<size_t>(place());
  for (size_t done = 0; done < items; done += chunk) {
    const size_t bytes = std::min(chunk, items - done) * reduction.item_bytes;
    const size_t offset = done * reduction.item_bytes;
    segment_.begin(wait);
    for (size_t rank = 0; rank < ins.size(); ++rank)
      copy_into_slot(segment_.own_slot() + rank * bytes, ins[rank] + offset, bytes);
    segment_.post();
    segment_.wait_all(wait);
    write_to_slots(own * bytes);
    sources_.assign(outs_.begin(), outs_.end());
    outs_.assign(1, out + offset);
    sum(reduction, order, {at + offset, bytes});
  }
}

// A slot has a part of what its rank sends to each rank.
void NodeTransport::exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                             BoundedWait& wait) {
  const size_t longest = segment_.slot_bytes() / static_cast<size_t>(segment_.size());
  const auto at_rank = [&](int rank) { return static_cast<size_t>(rank) * longest; };
  for (size_t at = 0; at < most; at += longest) {
    segment_.begin(wait);
    for (const auto& [to, bytes] : out) {
      const auto now = stretch_of(bytes, at, longest);
      copy_into_slot(segment_.own_slot() + at_rank(to), now.data(), now.size());
    }
    segment_.post();
    for (const auto& [from, bytes] : in) {
      const auto now = stretch_of(bytes, at, longest);
      if (now.empty()) continue;
      segment_.wait(from, wait);
      copy_in_pieces(segment_.slot(from) + at_rank(place()), now.data(), now.size());
    }
  }
}

void NodeTransport::barrier(BoundedWait& wait) {
  segment_.begin(wait);
  segment_.post();
  segment_.wait_all(wait);
}

size_t slot_bytes_for(size_t ranks) {
  return std::min(kMostSlotBytes, kSectionBytes * std::max<size_t>(ranks, 2));
}

// The first rank collects the texts, so that each rank makes only a few requests to the store.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own) {
  const auto key = [&](int rank) { return format("{}/{}", stage, rank); };
  const std::string all = stage + "/all";
  if (node.own != 0) {
    store.set(key(node.ranks[static_cast<size_t>(node.own)]), own);
    return nlohmann::json::parse(store.get_to_str(all)).get<std::vector<std::string>>();
  }
  std::vector<std::string> texts = {own};
  for (size_t place = 1; place < node.ranks.size(); ++place)
    texts.push_back(store.get_to_str(key(node.ranks[place])));
  store.set(all, base::as_line(nlohmann::json(texts)));
  return texts;
}

std::unique_ptr<NodeTransport> open_node(PeerMonitor& monitor, const std::string& stage,
                                         const NodeRanks& node, size_t slot_bytes,
                                         std::chrono::milliseconds timeout, std::string& why) {
  return name_late_ranks(monitor, timeout, [&]() -> std::unique_ptr<NodeTransport> {
    int round = 0;
    auto block = shm::map_block(shm::Segment::bytes_for(slot_bytes), node, [&](const std::string& own) {
      return exchange(*monitor.store(), format("{}/{}", stage, round++), node, own);
    });
    why = block.why;
    if (block.pieces.empty()) return nullptr;
    BoundedWait wait(monitor, 0, timeout, true);
    return std::make_unique<NodeTransport>(std::move(block), node, slot_bytes, wait);
  });
}

}  // namespace lockstep::comm
