#pragma once
// MNIST's file format: big-endian magic, sizes, then unsigned bytes; plain or gzipped.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/data/node_share.h"

namespace lockstep {

/// Images as uint8 [samples, channels, height, width] from a file of 3 dimensions (one channel) or 4.
at::Tensor read_idx_images(const std::string& path, Arena& arena);

/// Labels as uint8 [samples]; each must be below `classes` (0 = any).
at::Tensor read_idx_labels(const std::string& path, Arena& arena, int64_t classes = 0);

/// Throws where images and labels are not equally many.
void check_idx_pair(const at::Tensor& images, const std::string& images_path, const at::Tensor& labels,
                    const std::string& labels_path);

}  // namespace lockstep
