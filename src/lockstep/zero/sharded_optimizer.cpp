#include "lockstep/zero/sharded_optimizer.h"

#include <ATen/core/Tensor.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/parallel/team.h"
#include "lockstep/zero/shares.h"

namespace lockstep::zero {
namespace {

using checkpoint::ByteTensors;

constexpr int64_t kAlign = 64;

// A rank's updated memory, one stretch after the other.
ByteTensors stretches_of(const std::vector<ParameterPiece>& share, const std::vector<at::Tensor>& params) {
  ByteTensors all;
  for (const auto& piece : share) {
    const auto& param = params[piece.param];
    if (!param.requires_grad() || piece.size() == 0) continue;
    all.add(flat(param).slice(0, piece.begin, piece.end).view(at::kByte));
  }
  return all;
}

int64_t slot_bytes(const std::vector<ByteTensors>& shares) {
  int64_t longest = 0;
  for (const auto& share : shares) longest = std::max(longest, share.total);
  const auto most = std::max<int64_t>(kAlign, checkpoint::kInFlight / static_cast<int64_t>(shares.size()));
  return (std::min(longest, most) + kAlign - 1) / kAlign * kAlign;
}

// One all-gather: slot r of the buffer is rank r's next bytes.
void exchange_round(const Team& team, const std::vector<ByteTensors>& shares, int64_t from,
                    at::Tensor& buffer) {
  const auto slots = buffer.chunk(team.world());
  const auto own = static_cast<size_t>(team.rank());
  at::Tensor mine = slots[own];
  checkpoint::take_from(shares[own], from, mine);
  base::own_all_gather_single(*team.group(), buffer, mine)->wait();
  for (size_t rank = 0; rank < shares.size(); ++rank)
    if (rank != own) checkpoint::put_into(shares[rank], from, slots[rank]);
}

/// Sends each rank's updated elements to all ranks. Collective.
void exchange_updates(const Team& team, const Shares& shares, const std::vector<at::Tensor>& params) {
  const torch::NoGradGuard no_grad;
  std::vector<ByteTensors> all;
  int64_t longest = 0;
  for (const auto& share : shares)
    longest = std::max(longest, all.emplace_back(stretches_of(share, params)).total);
  if (longest == 0) return;
  auto buffer =
      at::empty({slot_bytes(all) * team.world()}, at::TensorOptions(at::kByte).device(team.device()));
  for (int64_t from = 0; from < longest; from += slot_bytes(all)) exchange_round(team, all, from, buffer);
}

}  // namespace

}  // namespace lockstep::zero

namespace lockstep {

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimGroups& groups, const Team& team) {
  return sharded_with([](const OptimGroups& own) { return make_optimizer(own); }, groups, team);
}

namespace {

constexpr size_t kElsewhere = std::numeric_limits<size_t>::max();

struct Rate {
  double lr;
};

zero::Shares share_out(const Optimizer& plain, int world) {
  if (!plain.elementwise())
    throw InputError("this optimizer cannot be sharded: its update is not elementwise", "optim.sharded",
                     "override elementwise() if it is, or omit optim.sharded");
  std::vector<zero::Extent> extents;
  for (const auto& param : plain.parameters()) {
    if (!param.is_non_overlapping_and_dense())
      throw InputError(format("a parameter of shape {} is not dense in memory, so ranks cannot share it",
                              c10::str(param.sizes())),
                       "optim.sharded", "make it contiguous(), or omit optim.sharded");
    extents.push_back({param.numel(), param.requires_grad()});
  }
  return zero::cut_evenly(extents, world);
}

}  // namespace

struct ShardedOptimizer::Share {
  Share(Team all, const Optimizer& plain)
      : team(std::move(all)),
        of_all(share_out(plain, team.world())),
        pieces(of_all[static_cast<size_t>(team.rank())]),
        places(plain.parameters().size(), kElsewhere) {
    for (size_t i = 0; i < pieces.size(); ++i) places[pieces[i].param] = i;
  }
  bool has(size_t param) const { return places.at(param) != kElsewhere; }
  const zero::ParameterPiece& piece(size_t param) const { return pieces[places[param]]; }

  Team team;
  zero::Shares of_all;
  const std::vector<zero::ParameterPiece>& pieces;  // this rank's
  std::vector<size_t> places;                       // of each parameter among them
  std::unique_ptr<Optimizer> own;                   // over them
};

ShardedOptimizer::ShardedOptimizer(const Make& make, const std::vector<std::vector<at::Tensor>>& groups,
                                   const Team& team)
    : ShardedOptimizer(make, make(groups), team) {}

ShardedOptimizer::ShardedOptimizer(const Make& make, std::unique_ptr<Optimizer> plain, const Team& team)
    : Optimizer([&] {
        std::vector<ParameterGroup<Rate>> groups;
        for (const auto& [begin, end, lr, extras] : plain->groups_) {
          const auto first = plain->params_.begin();
          groups.push_back(
              {{first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end)}, {lr}});
        }
        return groups;
      }()),
      share_(std::make_unique<Share>(team, *plain)) {
  plain.reset();
  share_->own = make_own(make);
}

ShardedOptimizer::~ShardedOptimizer() = default;

// In the order of the parameters, and so of `places`. An optimizer needs at least one parameter.
std::unique_ptr<Optimizer> ShardedOptimizer::make_own(const Make& make) const {
  std::vector<std::vector<at::Tensor>> groups(group_count());
  for (const auto& piece : share_->pieces)
    groups[group_of(piece.param)].push_back(zero::piece_of(parameters()[piece.param], piece));
  if (share_->pieces.empty()) groups[group_of(0)].push_back(zero::flat(parameters()[0]).slice(0, 0, 0));
  return make(groups);
}

void ShardedOptimizer::step() {
  Optimizer::step();
  zero::exchange_updates(share_->team, share_->of_all, parameters());
}

void ShardedOptimizer::update(const std::vector<Slot>& slots, size_t group) {
  std::vector<Slot> own;
  for (const auto& [index, param, grad] : slots) {
    if (!share_->has(index)) continue;
    const auto& piece = share_->piece(index);
    own.push_back({share_->places[index], zero::piece_of(param, piece), zero::gradient_of(param, piece)});
  }
  share_->own->set_lr(lr(group), group);
  if (!own.empty()) share_->own->update(own, group);
}

double ShardedOptimizer::momentum(size_t group) const {
  return share_->own->momentum(group);
}

void ShardedOptimizer::set_momentum(double momentum, size_t group) {
  share_->own->set_momentum(momentum, group);
}

bool ShardedOptimizer::has_betas() const {
  return share_->own->has_betas();
}

int64_t ShardedOptimizer::state_bytes(size_t index) const {
  return share_->has(index) ? share_->own->state_bytes(share_->places[index]) : 0;
}

Tree ShardedOptimizer::state_of(size_t index) const {
  return share_->has(index) ? share_->own->state_of(share_->places[index]) : Tree();
}

void ShardedOptimizer::set_state_of(size_t index, const Tree& state) {
  if (!share_->has(index)) return;
  const auto& param = parameters()[index];
  const auto& piece = share_->piece(index);
  if (piece.size() != param.numel() && !state.isNone()) refuse_misfits(index, state);
  share_->own->set_state_of(share_->places[index], zero::cut_state(param, piece, state));
}

// Before they are cut, so that the error names the parameter's shape, not a piece's.
void ShardedOptimizer::refuse_misfits(size_t index, const Tree& state) const {
  for (const auto& [key, value] : items(state)) {
    const bool misfit = value.isTensor() && value.toTensor().dim() > 0 &&
                        value.toTensor().sizes() != parameters()[index].sizes();
    if (misfit) fit(index, value, as_string(key, "state"));
  }
}

std::vector<std::pair<Tree, Tree>> ShardedOptimizer::options_of(size_t group) const {
  return share_->own->options_of(group);
}

void ShardedOptimizer::set_options_of(size_t group, const Tree& options) {
  share_->own->set_lr(lr(group), group);
  share_->own->set_options_of(group, options);
}

Tree ShardedOptimizer::whole_state(const std::vector<Tree>& held, size_t index) const {
  std::vector<std::pair<zero::ParameterPiece, Tree>> parts;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    for (const auto& piece : share_->of_all[rank]) {
      if (piece.param != index) continue;
      if (const auto found = find(held[rank], static_cast<int64_t>(index))) parts.emplace_back(piece, *found);
    }
  }
  return parts.empty() ? Tree() : zero::join_states(parameters()[index], parts);
}

Tree ShardedOptimizer::state_dict() const {
  const auto held = checkpoint::gather_trees(share_->team, held_state());
  auto state = make_dict();
  for (size_t i = 0; i < parameters().size(); ++i)
    if (auto whole = whole_state(held, i); !whole.isNone()) put(state, static_cast<int64_t>(i), whole);
  return make_dict({{"state", state}, {"param_groups", group_dicts()}});
}

// All ranks throw if a share does not fit.
void ShardedOptimizer::load_state_dict(const Tree& state) {
  share_->team.together([&] { Optimizer::load_state_dict(state); });
}

}  // namespace lockstep
