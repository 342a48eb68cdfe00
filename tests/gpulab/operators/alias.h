#pragma once
// Device memory as the CPU's kernels see it: the lab's device memory is host memory, so a tensor of the CPU
// can be laid over it.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace lab {

bool on_gpu(const at::Tensor& tensor);

/// The same memory as a tensor of the CPU that owns nothing. Storage, offset, sizes, strides and the bits for
/// conjugate and negative are the same. When a kernel enlarges it, it gets memory of its own.
at::Tensor alias_of(const at::Tensor& tensor);

/// The bytes from a tensor's first element to its last, those of its neighbours between them included.
struct Extent {
  char* begin = nullptr;
  size_t bytes = 0;
};
Extent extent_of(const at::Tensor& alias);

/// A copy in memory of the host, with the same sizes and strides, whatever they are.
at::Tensor twin_of(const at::Tensor& alias);

/// What lies in a tensor's memory now, to be put back.
class Snapshot {
 public:
  explicit Snapshot(const at::Tensor& alias);
  void restore() const;

 private:
  Extent place_;
  std::vector<char> bytes_;
};

/// Fills what nobody has written yet, so that a reader who does not wait gets NaN or -1.
void poison(const at::Tensor& alias);

/// Copies values of the same sizes; where the strides agree as well, bytes.
void copy_into(const at::Tensor& to, const at::Tensor& from);

}  // namespace lab
