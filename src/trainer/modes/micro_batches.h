#pragma once
// A batch cut into micro-batches, each with its share in the batch's mean loss.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep::train {

struct MicroBatch {
  at::Tensor input, target;
  double parts;  // 1 / its share in the batch's mean: what a loss is divided by
};

/// `count` of them as alike as they can be, the larger ones first; as many as there are samples where these
/// are fewer. `weight` says how much a target counts in a mean.
std::vector<MicroBatch> cut_batch(const at::Tensor& input, const at::Tensor& target, int64_t count,
                                  const std::function<double(const at::Tensor&)>& weight);

}  // namespace lockstep::train
