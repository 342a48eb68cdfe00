#pragma once
// Metrics of an evaluation: sums over samples that add up exactly over ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Formats with four decimals, or with five digits above 999 and below 0.001: "0.9695", "24311", "0.00012".
std::string metric_text(double value);

/// The loss of a batch: sum / weight is the loss with Reduction::Mean.
struct LossSum {
  double sum = 0;
  double weight = 0;  // number of samples, or the sum of their class weights
};

/// Each rank adds its batches, each sample once in the whole job. After sums() are all-reduced in place,
/// values() returns the metrics of the whole set on every rank.
class Metrics {
 public:
  virtual ~Metrics() = default;
  /// Adds a batch; `indices` are the indices of its samples in the set.
  virtual void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                   const LossSum& loss) = 0;
  /// The sums so far: CPU tensors with the same shapes on every rank.
  virtual std::vector<at::Tensor> sums() = 0;
  /// Names and values in the order to print: "loss" first, then "accuracy" if there is one.
  virtual std::vector<std::pair<std::string, double>> values() const = 0;
  /// The values and the confusion matrix, if there is one, as text.
  virtual std::string report() const = 0;
};

/// Loss, accuracy and the confusion matrix; with two classes also F1 and AUC of class 1.
class ClassMetrics : public Metrics {
 public:
  /// `samples` is the size of the evaluated set.
  ClassMetrics(std::vector<std::string> class_names, int64_t samples);
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override;
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;

  /// The number of samples.
  int64_t samples() const;
  /// The number of correct predictions.
  int64_t correct() const;
  /// int64; a row for each true class, a column for each predicted class.
  const at::Tensor& confusion() const { return confusion_; }

 private:
  std::vector<std::string> names_;
  at::Tensor confusion_;
  at::Tensor loss_;    // double: sum and weight
  at::Tensor scores_;  // two classes: double, by sample index
  at::Tensor labels_;  // two classes: int8, by sample index: 1 + label; 0 if another rank has it
};

/// The scale of a regression's labels: the model learns (label - mean) / std.
struct LabelScale {
  double mean = 0;
  double std = 1;
};

/// Metrics of a regression: the loss in the model's scale; in the label's unit mse and mae, the mean squared
/// and mean absolute error; and r2, the share of the labels' variance that the model explains.
class NumberMetrics : public Metrics {
 public:
  /// `samples` is the size of the evaluated set.
  explicit NumberMetrics(const LabelScale& scale = {}, int64_t samples = 0);
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override { return {sums_, points_}; }
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;
  /// Labels and predictions of some samples in the label's unit: double [at most 500, 2].
  at::Tensor points() const { return points_.mul(scale_.std).add(scale_.mean); }

 private:
  at::Tensor sums_;    // double: samples, squared and absolute errors, loss, its weight, labels, squares
  at::Tensor points_;  // double, of every `every_`th sample
  LabelScale scale_;
  int64_t every_;
};

/// The consecutive parts of a set: name and size of each.
using Parts = std::vector<std::pair<std::string, int64_t>>;

/// A ClassMetrics for each part, such as MultiNLI's matched and mismatched. values() begins with those of the
/// first part; the names of the others contain the name of their part.
class PartMetrics : public Metrics {
 public:
  /// `weights` are the class weights of the loss; may be undefined.
  PartMetrics(const Parts& parts, const std::vector<std::string>& class_names, at::Tensor weights);
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override;
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;

 private:
  Parts parts_;
  std::vector<ClassMetrics> metrics_;
  at::Tensor weights_;
};

}  // namespace lockstep
