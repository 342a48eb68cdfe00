#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fast/table.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

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
