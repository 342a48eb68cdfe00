#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "fast/table.h"
#include "kernels/levels.h"
#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  int64_t rows;
  std::vector<int64_t> widths;  // the inputs, then each layer's outputs
};

const std::vector<Shape> kShapes = {{1, {1, 1}},          {1, {8, 64, 32, 2}}, {32, {8, 64, 32, 2}},
                                    {19, {8, 64, 32, 2}}, {5, {7, 33, 1}},     {4, {33, 7, 1, 33, 5}},
                                    {33, {3, 16, 10}},    {128, {200, 65, 10}}};

std::vector<at::Tensor> drawn_layers(const Shape& shape, bool with_bias) {
  std::vector<at::Tensor> parameters;
  for (size_t i = 1; i < shape.widths.size(); ++i) {
    parameters.push_back(at::randn({shape.widths[i], shape.widths[i - 1]}) / 3);
    parameters.push_back(with_bias ? at::randn({shape.widths[i]}) : at::Tensor());
  }
  return parameters;
}

// The same in double precision, as a graph.
at::Tensor by_graph(at::Tensor x, const std::vector<at::Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); i += 2) {
    x = torch::nn::functional::linear(x, parameters[i], parameters[i + 1]);
    if (i + 2 < parameters.size()) x = x.relu();
  }
  return x;
}

std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> wide;
  for (const auto& one : parameters)
    wide.push_back(one.defined() ? one.to(at::kDouble).requires_grad_() : at::Tensor());
  return wide;
}

std::vector<at::Tensor> gradients_like(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> made;
  for (const auto& one : parameters) made.push_back(one.defined() ? at::full_like(one, 7) : at::Tensor());
  return made;
}

std::unique_ptr<DenseChain> chain_over(const std::vector<at::Tensor>& parameters,
                                       const std::vector<at::Tensor>& gradients, SimdLevel level) {
  std::vector<DenseLayer> layers;
  for (size_t i = 0; i < parameters.size(); i += 2) {
    const bool has_bias = parameters[i + 1].defined();
    layers.push_back({.inputs = parameters[i].size(1),
                      .outputs = parameters[i].size(0),
                      .weight = parameters[i].const_data_ptr<float>(),
                      .bias = has_bias ? parameters[i + 1].const_data_ptr<float>() : nullptr,
                      .weight_gradient = gradients[i].mutable_data_ptr<float>(),
                      .bias_gradient = has_bias ? gradients[i + 1].mutable_data_ptr<float>() : nullptr});
  }
  return make_dense_chain(std::move(layers), level);
}

at::Tensor forward_and_backward(DenseChain& chain, const at::Tensor& x, const at::Tensor& gradient) {
  auto outputs = at::empty_like(gradient);
  std::copy_n(chain.forward(x.const_data_ptr<float>(), x.size(0)), outputs.numel(),
              outputs.mutable_data_ptr<float>());
  std::copy_n(gradient.const_data_ptr<float>(), gradient.numel(), chain.output_gradient());
  chain.backward(x.const_data_ptr<float>());
  return outputs;
}

// Where terms cancel, a sum's error is as large as that of its largest neighbours.
bool is_near(const at::Tensor& ours, const at::Tensor& wanted) {
  const double largest = wanted.abs().max().item<double>();
  return at::allclose(ours.to(at::kDouble), wanted, 0, 1e-6 * std::max(largest, 1.0) + 1e-6);
}

TEST(DenseChain, IsNearDoublePrecisionForwardAndBackwardAtEachLevel) {
  at::manual_seed(1);
  for (const auto& shape : kShapes)
    for (const auto level : levels())
      for (const bool with_bias : {true, false}) {
        SCOPED_TRACE(format("{} rows, {} inputs, {} layers, level {}, bias {}", shape.rows, shape.widths[0],
                            shape.widths.size() - 1, static_cast<int>(level), with_bias));
        const auto parameters = drawn_layers(shape, with_bias), wide = in_double(parameters);
        const auto gradients = gradients_like(parameters);
        const auto x = at::randn({shape.rows, shape.widths[0]});
        const auto gradient = at::randn({shape.rows, shape.widths.back()});
        auto chain = chain_over(parameters, gradients, level);
        const auto ours = forward_and_backward(*chain, x, gradient);
        const auto wanted = by_graph(x.to(at::kDouble), wide);
        wanted.backward(gradient.to(at::kDouble));
        EXPECT_TRUE(is_near(ours, wanted));
        for (size_t i = 0; i < parameters.size(); ++i) {
          if (!parameters[i].defined()) continue;
          EXPECT_TRUE(is_near(gradients[i], wide[i].grad())) << "parameter " << i;
        }
      }
}

TEST(DenseChain, TakesBatchesOfOtherSizesInTurn) {
  at::manual_seed(2);
  const Shape shape = {0, {8, 33, 2}};
  const auto parameters = drawn_layers(shape, true), gradients = gradients_like(parameters);
  auto chain = chain_over(parameters, gradients, level());
  for (const int64_t rows : {32, 5, 1, 48}) {
    const auto x = at::randn({rows, 8}), gradient = at::randn({rows, 2});
    const auto ours = forward_and_backward(*chain, x, gradient);
    const auto fresh_gradients = gradients_like(parameters);
    auto fresh = chain_over(parameters, fresh_gradients, level());
    EXPECT_TRUE(ours.equal(forward_and_backward(*fresh, x, gradient)));
    for (size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(gradients[i].equal(fresh_gradients[i]));
  }
}

TEST(DenseChain, LetsWhatIsNoNumberThrough) {
  const auto parameters = drawn_layers({0, {2, 9, 3}}, true), gradients = gradients_like(parameters);
  auto chain = chain_over(parameters, gradients, level());
  const auto x = at::full({2, 2}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(forward_and_backward(*chain, x, at::ones({2, 3})).isnan().all().item<bool>());
}

}  // namespace
}  // namespace lockstep::kernels
