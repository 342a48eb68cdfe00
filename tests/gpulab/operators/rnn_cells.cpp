// The cells that LSTM and GRU run on a GPU without cuDNN.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "formulas.h"
#include "kernels.h"

namespace lab {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const Optional& bias) {
  return has(bias) ? widened(gates) + widened(*bias) : widened(gates);
}

Tensor sigmoid_slope(const Tensor& value) {
  return (1 - value) * value;
}
Tensor tanh_slope(const Tensor& value) {
  return 1 - value * value;
}

/// hidden, cell, and for the backward pass the four gates
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const Optional& input_bias,
                                             const Optional& hidden_bias) {
  const auto type = cx.scalar_type();
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh();
  const Tensor out = gates[3].sigmoid();
  const Tensor cy = forget * widened(cx) + in * cell;
  return {(out * cy.tanh()).to(type), cy.to(type), at::cat({in, forget, cell, out}, 1).to(type)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional& grad_hy, const Optional& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  if (!has(grad_hy) && !has(grad_cy)) return {};
  const auto type = workspace.scalar_type();
  const auto gates = widened(workspace).chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor state = widened(cy).tanh();
  const Tensor grad_hidden = has(grad_hy) ? widened(*grad_hy) : at::zeros_like(state);
  Tensor grad_cell = grad_hidden * out * tanh_slope(state);
  if (has(grad_cy)) grad_cell = grad_cell + widened(*grad_cy);
  const Tensor grad_gates =
      at::cat({grad_cell * cell * sigmoid_slope(in), grad_cell * widened(cx) * sigmoid_slope(forget),
               grad_cell * in * tanh_slope(cell), grad_hidden * state * sigmoid_slope(out)},
              1)
          .to(type);
  return {grad_gates, (grad_cell * forget).to(cx.scalar_type()), has_bias ? grad_gates.sum(0) : Tensor()};
}

/// hidden, and for the backward pass: reset, update and new gate, the former state, the hidden part of the
/// new gate
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const Optional& input_bias, const Optional& hidden_bias) {
  const auto type = hx.scalar_type();
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor former = widened(hx);
  const Tensor reset = (input[0] + hidden[0]).sigmoid(), update = (input[1] + hidden[1]).sigmoid();
  const Tensor fresh = (input[2] + reset * hidden[2]).tanh();
  const Tensor hy = fresh + update * (former - fresh);
  return {hy.to(type), at::cat({reset, update, fresh, former, hidden[2]}, 1).to(type)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace, bool has_bias) {
  const auto type = workspace.scalar_type();
  const auto saved = widened(workspace).chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &former = saved[3],
               &hidden = saved[4];
  const Tensor grad = widened(grad_hy);
  const Tensor grad_update = grad * (former - fresh) * sigmoid_slope(update);
  const Tensor grad_fresh = grad * (1 - update) * tanh_slope(fresh);
  const Tensor grad_reset = grad_fresh * hidden * sigmoid_slope(reset);
  const Tensor of_input = at::cat({grad_reset, grad_update, grad_fresh}, 1).to(type);
  const Tensor of_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1).to(type);
  return {of_input, of_hidden, (grad * update).to(type), has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

}  // namespace

void add_rnn_cells(Kernels& kernels) {
  add_kernel(kernels, "_thnn_fused_lstm_cell", "", &lstm_cell);
  add_kernel(kernels, "_thnn_fused_lstm_cell_backward_impl", "", &lstm_cell_backward);
  add_kernel(kernels, "_thnn_fused_gru_cell", "", &gru_cell);
  add_kernel(kernels, "_thnn_fused_gru_cell_backward", "", &gru_cell_backward);
}

}  // namespace lab
