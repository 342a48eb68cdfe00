#pragma once
// Tensors as stretches of memory, which is what a transport carries.

#include <ATen/ATen.h>

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::comm {

/// In which order a tensor's elements are seen. gloo sums a tensor without gaps in memory order.
enum class ElementOrder { logical, memory };

/// A tensor seen as contiguous memory; written back to where it came from if it had to be copied.
class Flat {
 public:
  explicit Flat(const at::Tensor& tensor, ElementOrder order = ElementOrder::logical) : tensor_(tensor) {
    const bool as_it_lies = order == ElementOrder::memory && tensor.is_non_overlapping_and_dense();
    flat_ = as_it_lies ? tensor : tensor.contiguous();
  }
  std::byte* data() const { return static_cast<std::byte*>(flat_.data_ptr()); }
  size_t bytes() const { return flat_.nbytes(); }
  std::span<std::byte> span() const { return {data(), bytes()}; }
  size_t items() const { return static_cast<size_t>(flat_.numel()); }
  void write_back() {
    if (flat_.is_same(tensor_)) return;
    const at::NoGradGuard no_grad;  // it may be a parameter
    tensor_.copy_(flat_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor flat_;
};

/// Several, one for each rank.
class Flats {
 public:
  explicit Flats(const std::vector<at::Tensor>& tensors, ElementOrder order = ElementOrder::logical) {
    for (const auto& tensor : tensors) flats_.emplace_back(tensor, order);
  }
  std::vector<std::byte*> places() const {
    std::vector<std::byte*> places;
    for (const auto& flat : flats_) places.push_back(flat.data());
    return places;
  }
  std::vector<std::span<std::byte>> spans() const {
    std::vector<std::span<std::byte>> spans;
    for (const auto& flat : flats_) spans.push_back(flat.span());
    return spans;
  }
  void write_back() {
    for (auto& flat : flats_) flat.write_back();
  }

 private:
  std::vector<Flat> flats_;
};

/// A contiguous tensor in equal parts, one for each rank.
inline std::vector<at::Tensor> pieces_of(const at::Tensor& whole, int count) {
  TORCH_CHECK(whole.is_contiguous() && whole.numel() % count == 0, "a tensor of ", whole.sizes(),
              " is not a contiguous row of ", count, " equal pieces");
  return whole.view({-1}).chunk(count);
}

/// One output for each input, and at least one.
inline void require_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(), "a collective of several tensors needs as ",
              "many inputs as outputs, and one at least: not ", inputs.size(), " and ", outputs.size());
}

}  // namespace lockstep::comm
