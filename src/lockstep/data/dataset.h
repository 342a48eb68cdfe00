#pragma once
// What a loader reads from: a fixed number of samples, and any of them stacked into one batch.

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
  at::Tensor target;                  // undefined where the samples have no label
  std::vector<int64_t> indices = {};  // which samples these are; filled in by the Loader

  /// The input for 0, the target for 1: what a structured binding asks for.
  template <std::size_t I>
  at::Tensor& get() {
    return I == 0 ? input : target;
  }
  /// The same of a batch that may not change.
  template <std::size_t I>
  const at::Tensor& get() const {
    return I == 0 ? input : target;
  }
};

/// A set as the tensors that it is made of, one sample along each first dimension.
struct WholeSet {
  at::Tensor samples;  // as in a batch's input, or the bytes that `table` makes it of
  at::Tensor targets;  // as in a batch's target; undefined where there are none
  at::Tensor table;    // what a byte becomes, [channels, 256]; undefined where samples are used as they are
};

/// Samples by number. `get` is called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// How many samples there are.
  virtual int64_t size() const = 0;
  /// The samples named, in that order. `pinned`: straight into page-locked memory where the set can do so.
  virtual Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const = 0;
  /// For data.resident: all of it, where the set lies in memory whole; none where samples are made when they
  /// are asked for.
  virtual std::optional<WholeSet> whole() const { return std::nullopt; }
  /// The set as it is trained on in that epoch, where samples are another way each time: what was drawn for a
  /// sample follows from the epoch and its number alone. nullptr: this set, always.
  virtual std::shared_ptr<const Dataset> in_epoch(int64_t /*epoch*/) const { return nullptr; }
  /// What a person calls the sample: its file, say. Empty: it has no name but its number.
  virtual std::string name_of(int64_t /*index*/) const { return {}; }
  /// For data.bucket: how long each sample is, where samples differ in that; else nothing.
  virtual std::vector<int64_t> lengths() const { return {}; }
};

}  // namespace lockstep

template <>
struct std::tuple_size<lockstep::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, lockstep::Batch> {
  using type = at::Tensor;
};
