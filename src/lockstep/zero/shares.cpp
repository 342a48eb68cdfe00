#include "lockstep/zero/shares.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

namespace lockstep::zero {
namespace {

bool is_whole(const at::Tensor& param, const ParameterPiece& piece) {
  return piece.size() == param.numel();
}

at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& value) {
  return at::empty_like(param, value.options().requires_grad(false)).copy_(value);
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

}  // namespace

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor piece_of(const at::Tensor& param, const ParameterPiece& piece) {
  return is_whole(param, piece) ? param.detach() : flat(param).slice(0, piece.begin, piece.end);
}

at::Tensor gradient_of(const at::Tensor& param, const ParameterPiece& piece) {
  const auto& grad = param.grad();
  if (is_whole(param, piece)) return grad;
  return piece_of(grad.strides() == param.strides() ? grad : laid_out_as(param, grad), piece);
}

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

}  // namespace

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

}  // namespace lockstep::zero
