#include "lockstep/tasks/stratified.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

namespace lockstep::tasks {

StratifiedSplit stratified(const std::vector<std::vector<int64_t>>& groups, double eval_fraction,
                           int64_t seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  StratifiedSplit split;
  for (const auto& members : groups) {
    const auto count = static_cast<int64_t>(members.size());
    const auto order = at::randperm(count, generator);
    const auto kept = static_cast<int64_t>(std::llround(eval_fraction * static_cast<double>(count)));
    for (int64_t i = 0; i < count; ++i) {
      (i < kept ? split.eval : split.train).push_back(members[order.const_data_ptr<int64_t>()[i]]);
    }
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.eval.begin(), split.eval.end());
  return split;
}

StratifiedSplit stratified(const at::Tensor& labels, size_t classes, double eval_fraction, int64_t seed) {
  std::vector<std::vector<int64_t>> rows(classes);
  const auto* label = labels.is_floating_point() ? nullptr : labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.size(0); ++i) rows[label ? label[i] : 0].push_back(i);
  return stratified(rows, eval_fraction, seed);
}

}  // namespace lockstep::tasks
