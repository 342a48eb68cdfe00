#pragma once
// How many samples each class has, in words and as weights for the loss; of numbers, how far they reach and
// how they are standardised.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/options/settings.h"
#include "lockstep/tasks/metrics.h"

namespace lockstep::tasks {

/// int64 [classes]; `labels` of any integer type, each below `classes`.
at::Tensor class_counts(const at::Tensor& labels, int64_t classes);

/// float [classes]: samples / (classes * the class's own), scikit-learn's "balanced"; 0 for a class without
/// samples.
at::Tensor balanced_weights(const at::Tensor& counts);

/// "train: 614 samples: 0 400 (65.1 %), 1 214 (34.9 %)".
std::string balance_text(const std::string& set, const at::Tensor& counts,
                         const std::vector<std::string>& names);

/// "label: kind (column 4)", as task.label counts columns.
std::string label_text(const std::string& name, int64_t column);

/// "train: 80 samples, 0.5 to 12, mean 4.2": where a number is predicted.
std::string range_text(const std::string& set, const at::Tensor& numbers);

/// The mean and deviation of floats, in double; a deviation of 1 where all are alike.
LabelScale scale_of(const at::Tensor& numbers);
/// float, of the same shape: what is learned in place of the numbers.
at::Tensor scaled(const at::Tensor& numbers, const LabelScale& scale);
/// Does task.normalize_label ask for it?
bool wants_scale(const TaskSettings& task);

// A set parted into one to train on and one to evaluate on, of each class alike.

struct StratifiedSplit {
  std::vector<int64_t> train, eval;  // sorted
};

/// Of each group's members the same share goes to evaluation, rounded to the nearest; which, the seed
/// decides.
StratifiedSplit stratified(const std::vector<std::vector<int64_t>>& groups, double eval_fraction,
                           int64_t seed);
/// The same by label: int64 below `classes`, or floats, which are all of one kind.
StratifiedSplit stratified(const at::Tensor& labels, size_t classes, double eval_fraction, int64_t seed);

}  // namespace lockstep::tasks
