#pragma once
// A set parted into one to train on and one to evaluate on, of each class alike.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::tasks {

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
