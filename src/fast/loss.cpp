#include <algorithm>
#include <cmath>
#include <limits>

#include "fast/table.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kIgnored = -100;

double weight_of(const CrossEntropy& loss, int64_t target, int64_t classes) {
  if (target == kIgnored) return 0;
  if (target < 0 || target >= classes)
    throw InputError(format("target {} is not one of {} classes", target, classes), "cross-entropy",
                     "correct the labels, or give the model as many outputs as there are classes");
  return loss.class_weights.empty() ? 1 : loss.class_weights[target];
}

}  // namespace

double cross_entropy(const CrossEntropy& kind, const float* outputs, const int64_t* targets, int64_t rows,
                     int64_t classes, double share, float* gradient) {
  double weights = 0;
  for (int64_t row = 0; row < rows; ++row) weights += weight_of(kind, targets[row], classes);
  const double smooth = kind.label_smoothing / static_cast<double>(classes);
  double loss = 0;
  for (int64_t row = 0; row < rows; ++row, outputs += classes, gradient += classes) {
    if (targets[row] == kIgnored) {
      std::fill_n(gradient, classes, 0.0f);
      continue;
    }
    const double own = (1 - kind.label_smoothing) * weight_of(kind, targets[row], classes);
    // each class takes a part of the row's loss: -part * log of its probability
    const auto part = [&](int64_t c) {
      const double even = smooth == 0 ? 0 : smooth * (kind.class_weights.empty() ? 1 : kind.class_weights[c]);
      return even + (c == targets[row] ? own : 0);
    };
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < classes; ++c) most = std::max(most, outputs[c]);
    float sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += gradient[c] = std::exp(outputs[c] - most);
    const float log_sum = std::log(sum);
    double parts = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const double mine = part(c);
      parts += mine;
      if (mine != 0) loss -= mine * static_cast<double>(outputs[c] - most - log_sum);
    }
    const auto scale = share / weights;
    for (int64_t c = 0; c < classes; ++c)
      gradient[c] = static_cast<float>((parts * static_cast<double>(gradient[c] / sum) - part(c)) * scale);
  }
  return loss / weights;
}

double mean_squared_error(const float* outputs, const float* targets, int64_t count, double share,
                          float* gradient) {
  const double scale = 2 * share / static_cast<double>(count);
  double loss = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double off = static_cast<double>(outputs[i]) - static_cast<double>(targets[i]);
    loss += off * off;
    gradient[i] = static_cast<float>(off * scale);
  }
  return loss / static_cast<double>(count);
}

}  // namespace lockstep::kernels
