#pragma once
// A fixed number of samples, any of which can be stacked into a batch.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Samples stacked along dimension 0. `auto& [x, y] = batch` binds input and target.
struct Batch {
  at::Tensor input;
  at::Tensor target;                  // undefined if the samples have no label
  std::vector<int64_t> indices = {};  // indices of the samples; the Loader sets them

  /// The input for 0, the target for 1; for structured bindings.
  template <std::size_t I>
  at::Tensor& get() {
    return I == 0 ? input : target;
  }
  /// The same for a const batch.
  template <std::size_t I>
  const at::Tensor& get() const {
    return I == 0 ? input : target;
  }
};

/// The tensors of a set. The first dimension is the sample.
struct DatasetTensors {
  at::Tensor samples;  // a batch's input, or bytes for `table`
  at::Tensor targets;  // a batch's target; may be undefined
  at::Tensor table;    // the value of each byte, [channels, 256]; undefined if samples are used unchanged
};
/// Deprecated.
using WholeSet [[deprecated("use DatasetTensors")]] = DatasetTensors;

/// Access to samples by index. Several threads may call `get` at the same time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// The number of samples.
  virtual int64_t size() const = 0;
  /// Returns these samples, in this order. `pinned`: in page-locked memory if the set supports it.
  virtual Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const = 0;
  /// For data.resident: the tensors of the whole set, if it is in memory.
  virtual std::optional<DatasetTensors> whole() const { return std::nullopt; }
  /// The set with the augmentation for that epoch, which depends only on the epoch and the sample's index.
  /// nullptr: this set is the same in every epoch.
  virtual std::shared_ptr<const Dataset> in_epoch(int64_t /*epoch*/) const { return nullptr; }
  /// A name for messages, such as the sample's file; if empty, messages show only the index.
  virtual std::string name_of(int64_t /*index*/) const { return {}; }
  /// For data.bucket: the length of each sample, if lengths differ.
  virtual std::vector<int64_t> lengths() const { return {}; }
};

}  // namespace lockstep

template <>
struct std::tuple_size<lockstep::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, lockstep::Batch> {
  using type = at::Tensor;
};
