#pragma once
// Images as bytes, converted by a table of 256 floats per channel when a batch is assembled.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/node_share.h"

namespace lockstep {

/// The value of each byte, float [channels, 256]; equals torchvision's ToTensor and Normalize, bit for bit.
at::Tensor normalize_table(const std::vector<double>& mean, const std::vector<double>& std);

/// Images and labels in memory, normalized when a batch is assembled.
class ImageSet : public Dataset {
 public:
  /// images uint8 [samples, channels, height, width]; labels uint8 [samples], or undefined.
  ImageSet(at::Tensor images, at::Tensor labels, at::Tensor table);
  int64_t size() const override { return images_.size(0); }
  /// Returns input float [n, channels, height, width] and target int64 [n].
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  std::optional<DatasetTensors> whole() const override;

 private:
  at::Tensor images_, labels_, table_;
};

// IDX, MNIST's file format: big-endian magic, sizes, then unsigned bytes; plain or gzipped.

/// Reads images as uint8 [samples, channels, height, width] from a file with 3 dimensions (one channel) or 4.
at::Tensor read_idx_images(const std::string& path, Arena& arena);

/// Reads labels as uint8 [samples]; each must be below `classes` (0 = any).
at::Tensor read_idx_labels(const std::string& path, Arena& arena, int64_t classes = 0);

}  // namespace lockstep
