#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "fast/table.h"
#include "kernels/levels.h"
#include "lockstep/base/error.h"
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

// Where terms cancel, a sum's error is as large as that of its largest neighbors.
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

struct LossCase {
  int64_t rows, classes;
  bool weighted;
  double smoothing;
};

std::vector<LossCase> loss_cases() {
  std::vector<LossCase> all;
  for (const auto& [rows, classes] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {32, 2}, {7, 1}, {19, 10}})
    for (const bool weighted : {false, true})
      for (const double smoothing : {0.0, 0.1, 1.0}) all.push_back({rows, classes, weighted, smoothing});
  return all;
}

CrossEntropy cross_entropy_of(const at::Tensor& weights, double smoothing) {
  CrossEntropy loss = {.label_smoothing = smoothing};
  if (weights.defined())
    loss.class_weights.assign(weights.const_data_ptr<float>(),
                              weights.const_data_ptr<float>() + weights.numel());
  return loss;
}

TEST(CrossEntropy, IsNearDoublePrecisionWithWeightsAndSmoothing) {
  at::manual_seed(1);
  for (const auto& one : loss_cases())
    for (const bool ignores : {false, true}) {
      SCOPED_TRACE(format("{} x {}, weighted {}, smoothing {}, ignores {}", one.rows, one.classes,
                          one.weighted, one.smoothing, ignores));
      const auto outputs = at::randn({one.rows, one.classes}) * 5;
      auto targets = at::randint(one.classes, {one.rows}, at::kLong);
      if (ignores && one.rows > 1) targets[1] = -100;
      const auto weights = one.weighted ? at::rand({one.classes}) + 0.1 : at::Tensor();
      const auto wide = outputs.to(at::kDouble).requires_grad_();
      const auto wanted =
          at::cross_entropy_loss(wide, targets, one.weighted ? weights.to(at::kDouble) : weights,
                                 at::Reduction::Mean, -100, one.smoothing);
      (wanted * 0.5).backward();
      auto gradient = at::empty_like(outputs);
      const double loss = cross_entropy(cross_entropy_of(weights, one.smoothing),
                                        outputs.const_data_ptr<float>(), targets.const_data_ptr<int64_t>(),
                                        one.rows, one.classes, 0.5, gradient.mutable_data_ptr<float>());
      EXPECT_NEAR(loss, wanted.item<double>(), 2e-6);
      EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), wide.grad(), 1e-5, 1e-7));
    }
}

TEST(CrossEntropy, SurvivesLargeOutputsAndShowsWhatIsNoNumber) {
  const int64_t target = 0;
  std::vector<float> gradient(2);
  const auto loss = [&](float one, float other) {
    const float outputs[] = {one, other};
    return cross_entropy({}, outputs, &target, 1, 2, 1, gradient.data());
  };
  EXPECT_NEAR(loss(-1000, 1000), 2000, 1e-3);
  EXPECT_NEAR(loss(1e30f, -1e30f), 0, 1e-6);
  EXPECT_TRUE(std::isnan(loss(std::nanf(""), 0)));
  EXPECT_TRUE(std::isnan(loss(std::nanf(""), std::nanf(""))));
}

TEST(CrossEntropy, RefusesATargetThatIsNoClass) {
  const float outputs[] = {1, 2};
  float gradient[2];
  for (const int64_t target : {2, -1, -101})
    EXPECT_THROW(cross_entropy({}, outputs, &target, 1, 2, 1, gradient), InputError);
}

TEST(MeanSquaredError, IsNearDoublePrecision) {
  at::manual_seed(2);
  for (const int64_t count : {1, 7, 33}) {
    const auto outputs = at::randn({count, 1}), targets = at::randn({count, 1});
    const auto wide = outputs.to(at::kDouble).requires_grad_();
    const auto wanted = at::mse_loss(wide, targets.to(at::kDouble));
    wanted.backward();
    auto gradient = at::empty_like(outputs);
    EXPECT_NEAR(mean_squared_error(outputs.const_data_ptr<float>(), targets.const_data_ptr<float>(), count, 1,
                                   gradient.mutable_data_ptr<float>()),
                wanted.item<double>(), 1e-6);
    EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), wide.grad(), 1e-6, 1e-8));
  }
}

}  // namespace
}  // namespace lockstep::kernels
