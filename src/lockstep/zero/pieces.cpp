#include "lockstep/zero/pieces.h"

#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep::zero {
namespace {

bool is_whole(const at::Tensor& param, const ParameterPiece& piece) {
  return piece.size() == param.numel();
}

// Memory of its own in the parameter's layout.
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
  if (is_whole(param, piece)) return param.detach();
  return flat(param).slice(0, piece.begin, piece.end);
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

}  // namespace lockstep::zero
