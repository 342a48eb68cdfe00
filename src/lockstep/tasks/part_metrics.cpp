#include "lockstep/tasks/part_metrics.h"

#include <ATen/ATen.h>

#include "lockstep/base/format.h"

namespace lockstep::tasks {

PartMetrics::PartMetrics(const Parts& parts, const std::vector<std::string>& class_names, at::Tensor weights)
    : parts_(parts), weights_(std::move(weights)) {
  for (const auto& [name, samples] : parts) metrics_.emplace_back(class_names, samples);
}

// A batch's loss is one number: where the batch reaches into two parts, each computes its own.
void PartMetrics::add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                      const LossSum& loss) {
  int64_t begin = 0;
  for (size_t part = 0; part < parts_.size(); begin += parts_[part++].second) {
    const int64_t end = begin + parts_[part].second;
    std::vector<int64_t> rows, own;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < begin || indices[i] >= end) continue;
      rows.push_back(static_cast<int64_t>(i));
      own.push_back(indices[i] - begin);
    }
    if (rows.empty()) continue;
    if (rows.size() == indices.size()) {
      metrics_[part].add(output, target, own, loss);
      continue;
    }
    const auto picked = at::tensor(rows, at::kLong);
    const auto out = output.to(at::kCPU, at::kFloat).index_select(0, picked);
    const auto truth = target.to(at::kCPU).index_select(0, picked);
    const auto weights = weights_.defined() ? weights_.to(at::kCPU) : weights_;
    const double sum = at::cross_entropy_loss(out, truth, weights, at::Reduction::Sum).item<double>();
    const double weight = weights.defined() ? weights.index_select(0, truth).sum(at::kDouble).item<double>()
                                            : static_cast<double>(rows.size());
    metrics_[part].add(out, truth, own, {sum, weight});
  }
}

std::vector<at::Tensor> PartMetrics::sums() {
  std::vector<at::Tensor> all;
  for (auto& part : metrics_) {
    const auto own = part.sums();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<std::pair<std::string, double>> PartMetrics::values() const {
  auto all = metrics_[0].values();
  for (size_t part = 1; part < parts_.size(); ++part)
    for (const auto& [name, value] : metrics_[part].values())
      all.emplace_back(parts_[part].first + "_" + name, value);
  return all;
}

std::string PartMetrics::report() const {
  std::string text;
  for (size_t part = 0; part < parts_.size(); ++part)
    text += format("{}{}\n{}", part ? "\n" : "", parts_[part].first, metrics_[part].report());
  return text;
}

}  // namespace lockstep::tasks
