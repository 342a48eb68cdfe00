#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "fast/bf16.h"
#include "fast/conv.h"
#include "fast/table.h"
#include "lockstep/kernels/pool_relu.h"

namespace lockstep::kernels {
namespace {

using at::MemoryFormat;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_plain(const at::Tensor& x, int64_t dimensions) {
  return x.defined() && x.device().is_cpu() && x.layout() == at::kStrided && x.scalar_type() == at::kFloat &&
         x.dim() == dimensions && x.numel() > 0;
}

// Of the larger of an input and a convolution's output: distances in it are of 32 bits.
constexpr int64_t kLargestImage = int64_t{1} << 24;

bool fits_first(const at::Tensor& x, int64_t in, int64_t out) {
  return in == 1 && out % kFirstStep == 0 && !(x.requires_grad() && at::GradMode::is_enabled());
}

bool fits_winograd(int64_t in, int64_t out) {
  return in % kInStep == 0 && out % kOutStep == 0;
}

bool is_known(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_plain(x, 4) || !is_plain(weight, 4) || !is_plain(bias, 1)) return false;
  const int64_t in = weight.size(1), out = weight.size(0);
  return x.size(1) == in && bias.size(0) == out && weight.size(2) == 3 && weight.size(3) == 3 &&
         x.size(2) > 1 && x.size(3) > 1 && std::max(in, out) * x.size(2) * x.size(3) < kLargestImage &&
         (fits_first(x, in, out) || fits_winograd(in, out));
}

ConvShape shape_of(const at::Tensor& x, const at::Tensor& weight) {
  return {x.size(0), x.size(1), weight.size(0), x.size(2), x.size(3)};
}

const float* numbers(const at::Tensor& x) {
  return x.const_data_ptr<float>();
}

at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(MemoryFormat::ChannelsLast);
}

// The first convolution is of floats: every image has the same background, whose rounding would count
// thousands of times.
Products products() {
  const bool asked = at::autocast::is_autocast_enabled(at::kCPU) &&
                     at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16;
  return asked && multiplies_bf16() ? Products::bf16 : Products::floats;
}

PoolOutput forward_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      Products products) {
  const auto shape = shape_of(x, weight);
  const std::array<int64_t, 4> sizes = {shape.images, shape.out, shape.high(), shape.wide()};
  PoolOutput pooled = {at::empty(sizes, x.options(), MemoryFormat::ChannelsLast),
                       at::empty(sizes, x.options().dtype(at::kByte), MemoryFormat::ChannelsLast)};
  const auto own_weight = channels_last(weight), own_bias = bias.contiguous();
  auto* output = pooled.output.mutable_data_ptr<float>();
  auto* winner = pooled.winner.mutable_data_ptr<uint8_t>();
  if (shape.in == 1)
    first_conv_forward(shape, numbers(x), numbers(own_weight), numbers(own_bias), output, winner, level());
  else
    winograd_forward(shape, numbers(x), numbers(own_weight), numbers(own_bias), output, winner, level(),
                     products);
  return pooled;
}

// The reducer wants a gradient to lie as its parameter does.
at::Tensor laid_as(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

struct Gradients {
  at::Tensor x, weight, bias;
};

Gradients first_backward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& winner,
                         const at::Tensor& gradient) {
  const auto own = channels_last(gradient);
  auto by_taps = at::empty(weight.sizes(), weight.options());
  auto bias = at::empty({weight.size(0)}, weight.options());
  first_conv_backward(shape_of(x, weight), numbers(x), numbers(own), winner.const_data_ptr<uint8_t>(),
                      by_taps.mutable_data_ptr<float>(), bias.mutable_data_ptr<float>(), level());
  return {{}, laid_as(by_taps, weight), bias};
}

Gradients sparse_backward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& winner,
                          const at::Tensor& gradient, bool wants_x, Products products) {
  const auto shape = shape_of(x, weight);
  const auto own = gradient.contiguous();
  const PooledGradient pooled = {numbers(own), winner.const_data_ptr<uint8_t>()};
  Gradients result = {{},
                      at::empty(weight.sizes(), weight.options(), MemoryFormat::ChannelsLast),
                      at::empty({shape.out}, weight.options())};
  sparse_weight_gradient(shape, numbers(x), pooled, result.weight.mutable_data_ptr<float>(),
                         result.bias.mutable_data_ptr<float>(), level(), products);
  result.weight = laid_as(result.weight, weight);
  if (!wants_x) return result;
  result.x = at::empty(x.sizes(), x.options(), MemoryFormat::ChannelsLast);
  const auto own_weight = channels_last(weight);
  sparse_input_gradient(shape, pooled, numbers(own_weight), result.x.mutable_data_ptr<float>(), level(),
                        products);
  return result;
}

// As tensor operations, which have gradients of their own.
Gradients backward_with_graph(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& winner,
                              const at::Tensor& gradient) {
  const PooledImages images = {{x.size(0), weight.size(0), x.size(2), x.size(3)}, true};
  const auto sums = spread_with_graph(gradient, winner, images);
  const std::array<int64_t, 2> ones = {1, 1}, none = {0, 0};
  auto [by_x, by_weight, by_bias] =
      at::convolution_backward(sums, x, weight, at::IntArrayRef({weight.size(0)}), ones, ones, ones,
                               /*transposed=*/false, none, /*groups=*/1, {true, true, true});
  return {by_x, by_weight, by_bias};
}

struct ConvPoolRelu : torch::autograd::Function<ConvPoolRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    const auto made_of = products();
    const auto pooled = forward_of(channels_last(x), weight, bias, made_of);
    context->saved_data["bf16"] = made_of == Products::bf16;
    context->save_for_backward({x, weight, pooled.winner});
    return pooled.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &winner = saved[2];
    const auto result = [&] {
      if (at::GradMode::is_enabled()) return backward_with_graph(x, weight, winner, gradients[0]);
      const auto own = channels_last(x);
      if (x.size(1) == 1) return first_backward(own, weight, winner, gradients[0]);
      const auto made_of = context->saved_data["bf16"].toBool() ? Products::bf16 : Products::floats;
      return sparse_backward(own, weight, winner, gradients[0], context->needs_input_grad(0), made_of);
    }();
    return {result.x, result.weight, result.bias};
  }
};

}  // namespace

at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_known(x, weight, bias)) return pool_relu(at::conv2d(x, weight, bias, 1, 1));
  return ConvPoolRelu::apply(x, weight, bias);
}

}  // namespace lockstep::kernels
