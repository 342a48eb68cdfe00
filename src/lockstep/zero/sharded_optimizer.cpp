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

namespace lockstep::zero {

// --- which rank owns which elements of a parameter: computed from the sizes, the same on every rank ---

// Elements [begin, end) of a parameter, counted as they lie in memory.
struct ParameterPiece {
  size_t param;
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

// A parameter's size.
struct Extent {
  int64_t elements;
  bool trained;  // a frozen one does not count
};

// A rank's pieces in the order of the parameters, at most one of each.
using Shares = std::vector<std::vector<ParameterPiece>>;

namespace {

constexpr int64_t kGrain = 64;  // elements: a cache line of four-byte ones and more, and any vector twice

int64_t weight_of(const Extent& param) {
  return param.trained ? param.elements : 0;
}

// Where the shares would end if all parameters were one.
std::vector<int64_t> even_ends(const std::vector<Extent>& params, int world) {
  int64_t total = 0;
  for (const auto& param : params) total += weight_of(param);
  std::vector<int64_t> ends;
  for (int64_t rank = 1; rank <= world; ++rank)
    ends.push_back(total / world * rank + total % world * rank / world);
  return ends;
}

int64_t cut_before(int64_t place, int64_t elements) {
  if (place >= elements) return elements;
  return std::min((std::max<int64_t>(place, 0) + kGrain / 2) / kGrain * kGrain, elements);
}

// Equal shares up to 64 elements, whatever the parameters' sizes. A cut within a parameter is at a multiple
// of 64 elements, so that a kernel's vectors begin and end where they do for the whole parameter.
Shares cut_evenly(const std::vector<Extent>& params, int world) {
  Shares shares(static_cast<size_t>(world));
  const auto ends = even_ends(params, world);
  int64_t offset = 0;
  size_t rank = 0;
  const auto pass_full = [&] {
    while (rank + 1 < shares.size() && offset >= ends[rank]) ++rank;
  };
  for (size_t i = 0; i < params.size(); ++i) {
    pass_full();
    const int64_t weight = weight_of(params[i]);
    if (weight == 0) shares[rank].push_back({i, 0, params[i].elements});
    for (int64_t begin = 0; begin < weight;) {
      const bool last = rank + 1 == shares.size();
      const int64_t end = last ? weight : cut_before(ends[rank] - offset, weight);
      if (end > begin) shares[rank].push_back({i, begin, end});
      begin = std::max(begin, end);
      if (begin < weight) ++rank;
    }
    offset += weight;
  }
  return shares;
}

bool is_whole(const at::Tensor& param, const ParameterPiece& piece) {
  return piece.size() == param.numel();
}

at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& value) {
  return at::empty_like(param, value.options().requires_grad(false)).copy_(value);
}

// A view of a dense tensor's elements in memory order.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

// The view of a parameter that an optimizer gets: the whole parameter, or a row of its elements.
at::Tensor piece_of(const at::Tensor& param, const ParameterPiece& piece) {
  return is_whole(param, piece) ? param.detach() : flat(param).slice(0, piece.begin, piece.end);
}

// The gradient of that piece; a copy if its layout differs from the parameter's.
at::Tensor gradient_of(const at::Tensor& param, const ParameterPiece& piece) {
  const auto& grad = param.grad();
  if (is_whole(param, piece)) return grad;
  return piece_of(grad.strides() == param.strides() ? grad : laid_out_as(param, grad), piece);
}

// A piece's entry of a state: tensors of the parameter's size are cut, the rest (Adam's step) is kept.
Tree cut_state(const at::Tensor& param, const ParameterPiece& piece, const Tree& whole) {
  if (whole.isNone() || is_whole(param, piece)) return whole;
  const torch::NoGradGuard no_grad;
  auto own = make_dict();
  for (const auto& [key, value] : items(whole)) {
    const bool cut = value.isTensor() && value.toTensor().sizes() == param.sizes();
    put(own, key, cut ? Tree(piece_of(laid_out_as(param, value.toTensor()), piece).clone()) : value);
  }
  return own;
}

at::Tensor joined(const at::Tensor& param, const std::vector<std::pair<ParameterPiece, Tree>>& parts,
                  const Tree& key) {
  const auto options = find(parts[0].second, key)->toTensor().options().device(at::kCPU);
  auto whole = at::empty_like(param, options.requires_grad(false)).zero_();
  for (const auto& [piece, state] : parts) {
    if (const auto value = find(state, key); value && value->isTensor())
      flat(whole).slice(0, piece.begin, piece.end).copy_(value->toTensor());
  }
  return whole;
}

// The whole entry from all pieces' entries; on the CPU.
Tree join_states(const at::Tensor& param, const std::vector<std::pair<ParameterPiece, Tree>>& parts) {
  const auto& [first, state] = parts.at(0);
  if (is_whole(param, first)) return state;
  const torch::NoGradGuard no_grad;
  auto whole = make_dict();
  for (const auto& [key, value] : items(state)) {
    const bool cut = value.isTensor() && value.toTensor().sizes() == at::IntArrayRef{first.size()};
    put(whole, key, cut ? Tree(joined(param, parts, key)) : value);
  }
  return whole;
}

// --- the exchange of updated elements ---

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
