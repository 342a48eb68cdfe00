#pragma once
// Images kept as bytes; a batch is gathered through a table of 256 floats a channel.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// What each byte becomes, float [channels, 256]: torchvision's ToTensor and Normalize, to the same bits.
at::Tensor normalize_table(const std::vector<double>& mean, const std::vector<double>& std);

/// Images and their labels in memory, normalised as a batch is made.
class ImageSet : public Dataset {
 public:
  /// images uint8 [samples, channels, height, width]; labels uint8 [samples], or undefined.
  ImageSet(at::Tensor images, at::Tensor labels, at::Tensor table);
  int64_t size() const override { return images_.size(0); }
  /// input float [n, channels, height, width], target int64 [n].
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  std::optional<WholeSet> whole() const override;

 private:
  at::Tensor images_, labels_, table_;
};

}  // namespace lockstep
