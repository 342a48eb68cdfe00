#pragma once
// Metrics of an evaluation: sums over samples that add up exactly over ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Four decimals, or five digits of a number above 999 or below 0.001: "0.9695", "24311", "0.00012".
std::string metric_text(double value);

/// A batch's losses: sum / weight is the loss with Reduction::Mean.
struct LossSum {
  double sum = 0;
  double weight = 0;  // the number of samples, or the sum of their classes' weights
};

/// Each rank adds its batches (each sample once in the whole job). Then sums() are all-reduced in place, and
/// values() are those of the whole set on every rank.
class Metrics {
 public:
  virtual ~Metrics() = default;
  /// `indices`: the samples' numbers in the set.
  virtual void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                   const LossSum& loss) = 0;
  /// CPU tensors, the same shapes on every rank.
  virtual std::vector<at::Tensor> sums() = 0;
  /// Name and value, in the order to print: "loss" first, then "accuracy" if there is one.
  virtual std::vector<std::pair<std::string, double>> values() const = 0;
  /// A table for people: the values, and a confusion matrix if there is one.
  virtual std::string report() const = 0;
};

/// loss, accuracy, the confusion matrix; with two classes also F1 and AUC of class 1.
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
  /// Row = the true class, column = the predicted one; int64.
  const at::Tensor& confusion() const { return confusion_; }

 private:
  std::vector<std::string> names_;
  at::Tensor confusion_;
  at::Tensor loss_;    // double: sum and weight
  at::Tensor scores_;  // two classes: double, by sample number
  at::Tensor labels_;  // two classes: int8, by sample number: 1 + label, or 0 on another rank
};

/// The scale of the predicted numbers: a model learns (number - mean) / std.
struct LabelScale {
  double mean = 0;
  double std = 1;
};

/// loss, mse, mae and r2: the mean squared and mean absolute error of one number per sample, in the label's
/// unit, and the share of the labels' variance that is explained. The loss is in the model's scale.
class NumberMetrics : public Metrics {
 public:
  /// `samples` is the size of the evaluated set.
  explicit NumberMetrics(const LabelScale& scale = {}, int64_t samples = 0);
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override { return {sums_, points_}; }
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;
  /// Some samples' labels and predictions in the label's unit: double [at most 500, 2].
  at::Tensor points() const { return points_ * scale_.std + scale_.mean; }

 private:
  at::Tensor sums_;    // double: samples, squares, absolutes, loss, loss's weight, labels, their squares
  at::Tensor points_;  // double, of every `every_`th sample
  LabelScale scale_;
  int64_t every_;
};

/// A set's consecutive parts, by name and size.
using Parts = std::vector<std::pair<std::string, int64_t>>;

/// A ClassMetrics for each part, such as MultiNLI's matched and mismatched. values() are the first part's,
/// then the others' with their part's name.
class PartMetrics : public Metrics {
 public:
  /// `weights` are the classes' in the loss; may be undefined.
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
