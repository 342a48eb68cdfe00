#pragma once
// Rows of floats, each with a label.

#include <ATen/core/Tensor.h>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// A table in memory.
class TableSet : public Dataset {
 public:
  /// features float [samples, columns]; labels int64 [samples], float [samples, numbers], or undefined.
  TableSet(at::Tensor features, at::Tensor labels);
  int64_t size() const override { return features_.size(0); }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  std::optional<DatasetTensors> whole() const override;

 private:
  at::Tensor features_, labels_;
};

}  // namespace lockstep
