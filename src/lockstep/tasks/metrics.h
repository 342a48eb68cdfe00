#pragma once
// What an evaluation counts: sums over samples that add up exactly over ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A batch's losses: sum / weight is what the loss with Reduction::Mean gives.
struct LossSum {
  double sum = 0;
  double weight = 0;  // of its samples together: their number, or the sum of their classes' weights
};

/// Fed batch by batch on each rank (each sample once in the whole job); then sums() are all-reduced in place
/// by SUM, and values() hold for the whole set on every rank.
class Metrics {
 public:
  virtual ~Metrics() = default;
  /// `indices` are the samples' numbers in the set.
  virtual void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
                   const LossSum& loss) = 0;
  /// CPU tensors, the same shapes on every rank.
  virtual std::vector<at::Tensor> sums() = 0;
  /// Name and value, in the order to print; "loss" first, and "accuracy" where there is one.
  virtual std::vector<std::pair<std::string, double>> values() const = 0;
  /// A table for people: the values, a confusion matrix where there is one.
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

  /// How many samples have been counted.
  int64_t samples() const;
  /// How many of them were told right.
  int64_t correct() const;
  /// Row = the true class, column = the predicted one; int64.
  const at::Tensor& confusion() const { return confusion_; }

 private:
  std::vector<std::string> names_;
  at::Tensor confusion_;
  at::Tensor loss_;    // double: sum and weight
  at::Tensor scores_;  // two classes: double, by sample number
  at::Tensor labels_;  // two classes: int8, by sample number: 1 + label, 0 where this rank has not seen it
};

/// How the numbers that are predicted were standardised: a model learns (number - mean) / std.
struct LabelScale {
  double mean = 0;
  double std = 1;
};

/// loss, mse and mae: the mean squared and the mean absolute error of one number a sample,
/// in the unit of the label where the model learns it by a scale; the loss is the model's own.
class NumberMetrics : public Metrics {
 public:
  explicit NumberMetrics(const LabelScale& scale = {});
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override { return {sums_}; }
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;

 private:
  at::Tensor sums_;  // double: samples, squares, absolutes, loss, loss's weight
  double unit_;      // what an error of 1 is in the label's
};

// Metrics of a set made of parts that each count alone: MultiNLI's matched and mismatched.

/// A set's consecutive parts, by name and size.
using Parts = std::vector<std::pair<std::string, int64_t>>;

/// A ClassMetrics a part. values() are the first one's, then the others' with their part's name.
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
