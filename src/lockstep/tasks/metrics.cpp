#include "lockstep/tasks/metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {
namespace {

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / whole;
}

// The probability that a sample of class 1 scores above one of class 0, with ties as one half (Mann-Whitney).
double area_under_curve(const at::Tensor& scores, const at::Tensor& labels) {
  const double* score = scores.const_data_ptr<double>();
  const int8_t* label = labels.const_data_ptr<int8_t>();
  std::vector<int64_t> order;
  for (int64_t i = 0; i < labels.numel(); ++i)
    if (label[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [score](int64_t a, int64_t b) { return score[a] < score[b]; });
  int64_t negatives = 0, positives = 0, twice_wins = 0;
  for (size_t i = 0; i < order.size();) {
    int64_t tied[2] = {0, 0};
    size_t j = i;
    for (; j < order.size() && score[order[j]] == score[order[i]]; ++j) ++tied[label[order[j]] - 1];
    twice_wins += tied[1] * (2 * negatives + tied[0]);
    negatives += tied[0];
    positives += tied[1];
    i = j;
  }
  return negatives && positives
             ? 0.5 * static_cast<double>(twice_wins) / (static_cast<double>(negatives) * positives)
             : 0.5;
}

std::string words_of(const at::Tensor& output) {
  if (output.dim() == 2) return format("{} numbers", output.size(1));
  return format("an output of {} dimensions", output.dim());
}

std::string value_lines(const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [name, value] : values) text += format("{:<10} {}\n", name, metric_text(value));
  return text;
}

}  // namespace

std::string metric_text(double value) {
  const double size = std::abs(value);
  return size >= 1000 || (size > 0 && size < 0.001) ? format("{:.5g}", value) : format("{:.4f}", value);
}

ClassMetrics::ClassMetrics(std::vector<std::string> class_names, int64_t samples)
    : names_(std::move(class_names)) {
  const auto classes = static_cast<int64_t>(names_.size());
  confusion_ = at::zeros({classes, classes}, at::kLong);
  loss_ = at::zeros({2}, at::kDouble);
  if (classes != 2) return;
  scores_ = at::zeros({samples}, at::kDouble);
  labels_ = at::zeros({samples}, at::kChar);
}

void ClassMetrics::add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                       const LossSum& loss) {
  const auto out = output.detach().to(at::kCPU, at::kFloat);
  const auto classes = static_cast<int64_t>(names_.size());
  if (out.dim() != 2 || out.size(1) != classes)
    throw InputError(
        format("the model returns {} per sample, but the data has {} classes", words_of(out), classes), "",
        "give the model one output per class, or set task.classes to the model's");
  const auto truth = target.to(at::kCPU);
  const auto cells = truth * classes + out.argmax(1);
  confusion_ += at::bincount(cells, {}, classes * classes).view({classes, classes});
  loss_ += at::tensor({loss.sum, loss.weight}, at::kDouble);
  if (!scores_.defined()) return;
  const auto places = at::tensor(indices, at::kLong);
  const auto wide = out.to(at::kDouble);
  const auto margin = wide.select(1, 1) - wide.select(1, 0);  // rises with class 1's probability
  const double least = -std::numeric_limits<double>::infinity();
  scores_.index_copy_(0, places, at::where(margin.isnan(), least, margin));  // a sum with NaN has no order
  labels_.index_copy_(0, places, (truth + 1).to(at::kChar));
}

std::vector<at::Tensor> ClassMetrics::sums() {
  if (!scores_.defined()) return {confusion_, loss_};
  return {confusion_, loss_, scores_, labels_};
}

int64_t ClassMetrics::samples() const {
  return confusion_.sum().item<int64_t>();
}
int64_t ClassMetrics::correct() const {
  return confusion_.trace().item<int64_t>();
}

std::vector<std::pair<std::string, double>> ClassMetrics::values() const {
  const int64_t all = samples();
  const double sum = loss_[0].item<double>(), weight = loss_[1].item<double>();
  std::vector<std::pair<std::string, double>> list{{"loss", weight > 0 ? sum / weight : 0},
                                                   {"accuracy", ratio(correct(), all)}};
  if (!scores_.defined()) return list;
  const auto cell = confusion_.accessor<int64_t, 2>();
  list.emplace_back("f1", ratio(2 * cell[1][1], 2 * cell[1][1] + cell[0][1] + cell[1][0]));
  list.emplace_back("auc", area_under_curve(scores_, labels_));
  return list;
}

std::string ClassMetrics::report() const {
  auto text = value_lines(values());
  text += format("{:<10} {} of {}\n", "correct", correct(), samples());
  size_t width = 7;
  for (const auto& name : names_) width = std::max(width, name.size() + 1);
  text += format("\nconfusion (row: the true class, column: the predicted one)\n{:>{}}", "", width);
  for (const auto& name : names_) text += format("{:>{}}", name, width);
  const auto cell = confusion_.accessor<int64_t, 2>();
  for (size_t row = 0; row < names_.size(); ++row) {
    text += format("\n{:>{}}", names_[row], width);
    for (size_t column = 0; column < names_.size(); ++column)
      text += format("{:>{}}", cell[row][column], width);
  }
  return text + "\n";
}

NumberMetrics::NumberMetrics(const LabelScale& scale, int64_t samples)
    : sums_(at::zeros({7}, at::kDouble)), scale_(scale), every_((samples + 499) / 500) {
  points_ = at::zeros({samples > 0 ? (samples + every_ - 1) / every_ : 0, 2}, at::kDouble);
}

void NumberMetrics::add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                        const LossSum& loss) {
  const auto out = output.detach().to(at::kCPU, at::kDouble);
  if (out.sizes() != target.sizes())
    throw InputError(format("the model returns {} per sample, but the task predicts one", words_of(out)), "",
                     "give the model one output, or set task.kind: classification");
  const auto truth = target.to(at::kCPU, at::kDouble);
  const auto error = out - truth;
  sums_ += at::tensor({static_cast<double>(target.size(0)), error.square().sum().item<double>(),
                       error.abs().sum().item<double>(), loss.sum, loss.weight, truth.sum().item<double>(),
                       truth.square().sum().item<double>()},
                      at::kDouble);
  const auto pairs = at::stack({truth.flatten(), out.flatten()}, 1);
  for (size_t i = 0; i < indices.size() && points_.numel() > 0; ++i)
    if (indices[i] % every_ == 0) points_[indices[i] / every_].copy_(pairs[static_cast<int64_t>(i)]);
}

std::vector<std::pair<std::string, double>> NumberMetrics::values() const {
  const double* sum = sums_.const_data_ptr<double>();
  const auto mean = [](double whole, double count) { return count > 0 ? whole / count : 0; };
  const double variance = sum[6] - mean(sum[5] * sum[5], sum[0]);  // times the samples
  return {{"loss", mean(sum[3], sum[4])},
          {"mse", scale_.std * scale_.std * mean(sum[1], sum[0])},
          {"mae", scale_.std * mean(sum[2], sum[0])},
          {"r2", variance > 1e-12 * sum[6] ? 1 - sum[1] / variance : 0}};
}

std::string NumberMetrics::report() const {
  return value_lines(values());
}

PartMetrics::PartMetrics(const Parts& parts, const std::vector<std::string>& class_names, at::Tensor weights)
    : parts_(parts), weights_(std::move(weights)) {
  for (const auto& [name, samples] : parts) metrics_.emplace_back(class_names, samples);
}

// If a batch belongs to two parts, each computes its own loss.
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

}  // namespace lockstep
