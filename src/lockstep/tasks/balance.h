#pragma once
// How many samples each class has, in words and as weights for the loss; of numbers, how far they reach.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::tasks {

/// int64 [classes]; `labels` of any integer type, each below `classes`.
at::Tensor class_counts(const at::Tensor& labels, int64_t classes);

/// float [classes]: samples / (classes * the class's own), scikit-learn's "balanced"; 0 for a class without
/// samples.
at::Tensor balanced_weights(const at::Tensor& counts);

/// "train: 614 samples: 0 400 (65.1 %), 1 214 (34.9 %)".
std::string balance_text(const std::string& set, const at::Tensor& counts,
                         const std::vector<std::string>& names);

/// "train: 80 samples, 0.5 to 12, mean 4.2": where a number is predicted.
std::string range_text(const std::string& set, const at::Tensor& numbers);

}  // namespace lockstep::tasks
