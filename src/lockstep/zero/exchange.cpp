#include "lockstep/zero/exchange.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/libtorch.h"
#include "lockstep/parallel/trees/stretches.h"
#include "lockstep/zero/pieces.h"

namespace lockstep::zero {
namespace {

using parallel::Stretches;

constexpr int64_t kAlign = 64;

// A rank's updated memory, one stretch after the other.
Stretches stretches_of(const std::vector<ParameterPiece>& share, const std::vector<at::Tensor>& params) {
  Stretches all;
  for (const auto& piece : share) {
    const auto& param = params[piece.param];
    if (!param.requires_grad() || piece.size() == 0) continue;
    all.add(flat(param).slice(0, piece.begin, piece.end).view(at::kByte));
  }
  return all;
}

int64_t slot_bytes(const std::vector<Stretches>& shares) {
  int64_t longest = 0;
  for (const auto& share : shares) longest = std::max(longest, share.total);
  const auto most = std::max<int64_t>(kAlign, parallel::kInFlight / static_cast<int64_t>(shares.size()));
  return (std::min(longest, most) + kAlign - 1) / kAlign * kAlign;
}

// One all-gather: slot r of the buffer is rank r's next bytes.
void exchange_round(const Team& team, const std::vector<Stretches>& shares, int64_t from,
                    at::Tensor& buffer) {
  const auto slots = buffer.chunk(team.world());
  const auto own = static_cast<size_t>(team.rank());
  at::Tensor mine = slots[own];
  parallel::take_from(shares[own], from, mine);
  base::own_all_gather_single(*team.group(), buffer, mine)->wait();
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    if (rank != own) parallel::put_into(shares[rank], from, slots[rank]);
  }
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

}  // namespace lockstep::zero
