#include "lockstep/tasks/balance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

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

at::Tensor class_counts(const at::Tensor& labels, int64_t classes) {
  return at::bincount(labels, {}, classes);
}

at::Tensor balanced_weights(const at::Tensor& counts) {
  const auto wide = counts.to(at::kDouble);
  const auto weights = wide.sum() / (wide * counts.numel());
  return at::where(counts > 0, weights, at::zeros_like(weights)).to(at::kFloat);
}

std::string balance_text(const std::string& set, const at::Tensor& counts,
                         const std::vector<std::string>& names) {
  constexpr size_t kMost = 12;
  const auto all = counts.sum().item<int64_t>();
  std::string text = format("{}: {} samples", set, all);
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    const auto count = counts[i].item<int64_t>();
    text += format("{} {} {} ({:.1f} %)", i == 0 ? ":" : ",", names[i], count, all ? 100.0 * count / all : 0);
  }
  return names.size() > kMost ? text + ", ..." : text;
}

std::string label_text(const std::string& name, int64_t column) {
  return format("label: {} (column {})", base::printable(name), column);
}

std::string range_text(const std::string& set, const at::Tensor& numbers) {
  if (numbers.numel() == 0) return format("{}: 0 samples", set);
  return format("{}: {} samples, {:g} to {:g}, mean {:g}", set, numbers.numel(), numbers.min().item<float>(),
                numbers.max().item<float>(), numbers.mean(at::kDouble).item<double>());
}

LabelScale scale_of(const at::Tensor& numbers) {
  if (numbers.numel() == 0) return {};
  const auto wide = numbers.to(at::kDouble);
  const auto mean = wide.mean();
  const double variance = (wide - mean).square().mean().item<double>();
  return {mean.item<double>(), variance > 0 ? std::sqrt(variance) : 1};
}

at::Tensor scaled(const at::Tensor& numbers, const LabelScale& scale) {
  return ((numbers.to(at::kDouble) - scale.mean) / scale.std).to(at::kFloat);
}

bool wants_scale(const TaskSettings& task) {
  return task.normalize_label == "standard" || (task.normalize_label == "auto" && task.normalize != "none");
}

}  // namespace lockstep::tasks
