#pragma once
// Metrics of a set made of parts that each count alone: MultiNLI's matched and mismatched.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tasks/metrics.h"

namespace lockstep::tasks {

/// The set's consecutive parts, by name and size.
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

}  // namespace lockstep::tasks
