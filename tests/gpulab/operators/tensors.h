#pragma once
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

// The tensors in the boxed arguments and returns of an operator.

namespace lab {

/// A value whose tensors are replaced, alone or in lists.
template <class Replace>
c10::IValue with_tensors(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) {
        list.push_back(replace(*tensor));
      } else {
        list.push_back(std::nullopt);
      }
    }
    return list;
  }
  return value;
}

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      if (tensor) visit(*tensor);
  }
}

// Device memory as the CPU's kernels see it: it is host memory, so a tensor of the CPU can be laid over it.

bool on_gpu(const at::Tensor& tensor);

/// The same memory as a tensor of the CPU that owns nothing. Storage, offset, sizes, strides and the bits for
/// conjugate and negative are the same. When a kernel enlarges it, it gets memory of its own.
at::Tensor alias_of(const at::Tensor& tensor);

/// The bytes from a tensor's first element to its last, those of its neighbors between them included.
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

// The tensors that a call is given, and what the CPU's kernel gets for them.

class Operands {
 public:
  /// With `on_copies` the first run writes to copies, and device memory stays as it is. With `is_kept`, other
  /// runs follow: numbers of the host are kept, for it may change them as soon as the call returns.
  Operands(bool on_copies, bool is_kept) : on_copies_(on_copies), is_kept_(is_kept) {}

  void add(const at::Tensor& given, bool written);

  /// What the first run gets.
  at::Tensor first(const at::Tensor& given) const;
  /// What later runs get: device memory itself.
  at::Tensor again(const at::Tensor& given) const;

  /// Device memory that is written to, and may have to be put back.
  std::vector<at::Tensor> written() const;

  /// After the first run: the tensors that a kernel resized are resized. The values follow unless `late`.
  void follow_sizes(bool late);

  /// The tensor that was given, where the kernel returns it or a view of it; otherwise undefined.
  at::Tensor given_for(const at::Tensor& returned) const;

 private:
  struct Operand {
    at::Tensor given, real, first;
    bool written = false;
  };
  const Operand* find(const at::Tensor& given) const;
  void follow_size(Operand& operand, bool late);

  bool on_copies_, is_kept_;
  std::deque<Operand> all_;
};

}  // namespace lab
