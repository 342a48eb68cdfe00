#pragma once
// Files and their classes as tensors, so that a node's ranks share one list of a million of them.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::data {

/// Paths under a root (or none), one after the other in `names`.
struct ImageList {
  std::string root;
  at::Tensor names;   // uint8, the paths without anything between them
  at::Tensor ends;    // int64 [files], where each one ends in `names`
  at::Tensor labels;  // int64 [files]; undefined where there are none

  int64_t size() const { return ends.size(0); }
  std::string file(int64_t index) const;
  std::string path(int64_t index) const { return root.empty() ? file(index) : root + "/" + file(index); }
};

/// `labels` may be empty.
ImageList image_list(const std::string& root, const std::vector<std::string>& files,
                     const std::vector<int64_t>& labels);

}  // namespace lockstep::data
