#pragma once
// Losses over plain memory, each with the gradient of its mean over a batch.

#include <cstdint>
#include <vector>

namespace lockstep::kernels {

/// As at::cross_entropy_loss has them; targets of -100 do not count.
struct CrossEntropy {
  std::vector<float> class_weights = {};  // empty: 1 each
  double label_smoothing = 0;

  /// The mean over the rows of outputs [rows, classes]; `gradient`, of the same shape, is that of the mean
  /// times `share`. InputError where a target is no class.
  double mean(const float* outputs, const int64_t* targets, int64_t rows, int64_t classes, double share,
              float* gradient) const;

 private:
  double weight_of(int64_t target, int64_t classes) const;
};

/// The same of (output - target) squared, over `count` of them.
double mean_squared_error(const float* outputs, const float* targets, int64_t count, double share,
                          float* gradient);

}  // namespace lockstep::kernels
