#include "lockstep/zero/exchange.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/libtorch.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/zero/pieces.h"

namespace lockstep::zero {
namespace {

constexpr int64_t kInFlight = int64_t{64} << 20;  // bytes of all ranks at a time: what the exchange may hold
constexpr int64_t kAlign = 64;

// A rank's updated memory, one stretch after the other.
struct Stretches {
  std::vector<at::Tensor> bytes;
  int64_t total = 0;
};

Stretches stretches_of(const std::vector<Piece>& share, const std::vector<at::Tensor>& params) {
  Stretches all;
  for (const auto& piece : share) {
    const auto& param = params[piece.param];
    if (!param.requires_grad() || piece.size() == 0) continue;
    all.bytes.push_back(flat(param).slice(0, piece.begin, piece.end).view(at::kByte));
    all.total += all.bytes.back().numel();
  }
  return all;
}

// Calls copy(part of a stretch, its place in the slot) for all that lies in [from, from + slot's size).
template <class Copy>
void for_each_part(const Stretches& all, int64_t from, const at::Tensor& slot, const Copy& copy) {
  int64_t begin = 0;
  for (const auto& stretch : all.bytes) {
    const auto first = std::max(from, begin), last = std::min(from + slot.numel(), begin + stretch.numel());
    if (first < last)
      copy(stretch.slice(0, first - begin, last - begin), slot.slice(0, first - from, last - from));
    begin += stretch.numel();
  }
}

int64_t slot_bytes(const std::vector<Stretches>& shares) {
  int64_t longest = 0;
  for (const auto& share : shares) longest = std::max(longest, share.total);
  const auto most = std::max<int64_t>(kAlign, kInFlight / static_cast<int64_t>(shares.size()));
  return (std::min(longest, most) + kAlign - 1) / kAlign * kAlign;
}

// One all-gather: slot r of the buffer is rank r's next bytes.
void exchange_round(const Team& team, const std::vector<Stretches>& shares, int64_t from,
                    at::Tensor& buffer) {
  const auto slots = buffer.chunk(team.world());
  const auto own = static_cast<size_t>(team.rank());
  at::Tensor mine = slots[own];
  for_each_part(shares[own], from, mine, [](const at::Tensor& part, at::Tensor place) { place.copy_(part); });
  base::own_all_gather_single(*team.group(), buffer, mine)->wait();
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    if (rank == own) continue;
    for_each_part(shares[rank], from, slots[rank],
                  [](at::Tensor part, const at::Tensor& place) { part.copy_(place); });
  }
}

at::Tensor to_bytes(const Tree& tree) {
  std::string text;
  write_pt([&](const void* data, size_t size) { text.append(static_cast<const char*>(data), size); },
           snapshot(tree));
  auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
  return bytes;
}

Tree from_bytes(const at::Tensor& bytes) {
  return read_pt({static_cast<const uint8_t*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())},
                 "a rank's share of the optimiser");
}

// Of rank `from`, on every rank; `size` is its length.
at::Tensor broadcast(const Team& team, const at::Tensor& own, int from, int64_t size) {
  std::vector<at::Tensor> bytes{team.rank() == from ? own.to(team.device())
                                                    : at::empty({size}, own.options().device(team.device()))};
  c10d::BroadcastOptions options;
  options.rootRank = from;
  team.group()->broadcast(bytes, options)->wait();
  return bytes[0].to(at::kCPU);
}

}  // namespace

void exchange_updates(const Team& team, const Shares& shares, const std::vector<at::Tensor>& params) {
  const torch::NoGradGuard no_grad;
  std::vector<Stretches> all;
  int64_t longest = 0;
  for (const auto& share : shares)
    longest = std::max(longest, all.emplace_back(stretches_of(share, params)).total);
  if (longest == 0) return;
  auto buffer =
      at::empty({slot_bytes(all) * team.world()}, at::TensorOptions(at::kByte).device(team.device()));
  for (int64_t from = 0; from < longest; from += slot_bytes(all)) exchange_round(team, all, from, buffer);
}

// Rank after rank, so that nobody holds more than one share beside what rank 0 puts together.
std::vector<Tree> gather_trees(const Team& team, const Tree& own) {
  const auto bytes = team.first() ? at::empty({0}, at::kByte) : to_bytes(own);
  const auto sizes = team.all_gather(torch::tensor(bytes.numel()));
  std::vector<Tree> all{team.first() ? own : make_dict()};
  for (int from = 1; from < team.world(); ++from) {
    const auto theirs = broadcast(team, bytes, from, sizes[static_cast<size_t>(from)].item<int64_t>());
    if (team.first()) all.push_back(from_bytes(theirs));
  }
  return team.first() ? all : std::vector<Tree>{};
}

}  // namespace lockstep::zero
