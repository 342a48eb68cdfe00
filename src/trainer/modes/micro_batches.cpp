#include "trainer/modes/micro_batches.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

namespace lockstep::train {

std::vector<MicroBatch> cut_batch(const at::Tensor& input, const at::Tensor& target, int64_t count,
                                  const std::function<double(const at::Tensor&)>& weight) {
  const int64_t parts = std::clamp<int64_t>(count, 1, std::max<int64_t>(1, input.size(0)));
  const auto inputs = input.tensor_split(parts), targets = target.tensor_split(parts);
  const double whole = parts > 1 ? weight(target) : 1;
  std::vector<MicroBatch> result;
  for (size_t i = 0; i < inputs.size(); ++i)
    result.push_back({inputs[i], targets[i], parts > 1 ? whole / weight(targets[i]) : 1});
  return result;
}

}  // namespace lockstep::train
