#pragma once
// Collectives over bytes, as a backend's transport offers them.

#include <ATen/ATen.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/memory/bounded_wait.h"
#include "lockstep/comm/memory/node_blocks.h"
#include "lockstep/comm/memory/node_window.h"
#include "lockstep/comm/memory/reduction.h"

namespace lockstep::comm {

// In which order the ranks' numbers become one, place by place of a message.

/// The ranks here are numbered within their node.
class ReductionOrder {
 public:
  /// Rank 0, rank 1, ...: the bits do not depend on how a message is cut.
  static ReductionOrder by_rank(size_t ranks) { return {ranks, 0}; }
  /// The order of gloo's ring, whose chunks have so many bytes (algorithms/gloo_chunks.h).
  static ReductionOrder as_gloo(size_t ranks, size_t chunk_bytes) { return {ranks, chunk_bytes}; }

  /// Where the order changes next after byte `at`.
  size_t end_of(size_t at) const { return chunk_ == 0 ? ~size_t{0} : (at / chunk_ + 1) * chunk_; }
  /// The rank that begins at byte `at`.
  size_t first(size_t at) const { return chunk_ == 0 ? 0 : (at / chunk_ + ranks_ - 1) % ranks_; }
  /// The one that comes after it.
  size_t next(size_t rank) const {
    if (chunk_ == 0) return rank + 1;
    return rank == 0 ? ranks_ - 1 : rank - 1;
  }

 private:
  ReductionOrder(size_t ranks, size_t chunk) : ranks_(ranks), chunk_(chunk) {}

  size_t ranks_;
  size_t chunk_;  // 0: by rank
};

/// One collective at a time. After an exception it is out of step: make no further call.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `out` null: take part without wanting the result. Where `in` is `out` and lies at the same place of a
  /// block on all ranks of the node, nothing is copied. `fold` says in which order a node's ranks are summed.
  virtual void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                          const ReductionOrder& fold, BoundedWait& wait) = 0;
  virtual void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) = 0;
  /// Rank r's bytes go to outs[r].
  virtual void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                          BoundedWait& wait) = 0;
  /// ins[r] is what this rank gives to rank r; out is what the ranks' gifts to this one come to, which begins
  /// at byte `at` of the message that `fold` cuts.
  virtual void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                              const Reduction& reduction, const ReductionOrder& fold, size_t at,
                              BoundedWait& wait) = 0;
  /// Messages between any ranks, all at once, as long as those who receive them expect. `most`: the bytes of
  /// the longest that one rank has for another, the same on all of them.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t most,
                        BoundedWait& wait) = 0;
  virtual void barrier(BoundedWait& wait) = 0;

  /// What the next collective is; ranks of a node that are in another throw UnlikeCalls.
  virtual void name_call(const CallWord& call) = 0;
  /// Says to its node that this rank has come to its next collective.
  virtual void arrive() = 0;
  /// Whether all of the node do so within some milliseconds.
  virtual bool all_arrived() = 0;
  /// Memory for tensors that all_reduce sums where it lies; or none, on all ranks of the node alike.
  virtual std::shared_ptr<NodeBlock> take_block(size_t bytes, BoundedWait& wait) = 0;
  /// This rank's place among those of its node, which is that of its piece of a block.
  virtual int place() const = 0;
  /// Whether the ranks of this node outnumber the cores they may run on.
  virtual bool crowded() const = 0;
};

// Tensors as stretches of memory, which is what a transport carries.

/// In which order a tensor's elements are seen. gloo sums a tensor without gaps in memory order.
enum class ElementOrder { logical, memory };

/// A tensor seen as contiguous memory; written back to where it came from if it had to be copied.
class FlatTensor {
 public:
  explicit FlatTensor(const at::Tensor& tensor, ElementOrder order = ElementOrder::logical)
      : tensor_(tensor) {
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
  std::vector<FlatTensor> flats_;
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
