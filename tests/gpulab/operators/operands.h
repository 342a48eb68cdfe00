#pragma once
// The tensors that a call is given, and what the CPU's kernel gets for them.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <deque>
#include <vector>

namespace lab {

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
