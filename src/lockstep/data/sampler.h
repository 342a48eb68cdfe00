#pragma once
// The samples of a rank, in Python's order, resumable inside an epoch.

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// A rank's sample indices for one pass, with random access. Without a shuffle they are computed on demand.
class SampleOrder {
 public:
  /// Every `stride`-th place of an epoch's list from `first` on; place p holds list[p % size].
  SampleOrder(int64_t first, int64_t stride, int64_t count, int64_t size)
      : first_(first), stride_(stride), count_(count), size_(size) {}
  explicit SampleOrder(std::vector<int64_t> indices);

  /// The number of samples.
  int64_t size() const { return count_; }
  int64_t operator[](int64_t place) const {
    return indices_ ? (*indices_)[place] : (first_ + place * stride_) % size_;
  }

 private:
  int64_t first_ = 0;
  int64_t stride_ = 1;
  int64_t count_ = 0;
  int64_t size_ = 1;
  std::shared_ptr<const std::vector<int64_t>> indices_;  // null if computed
};

/// The order of a Loader's samples.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// The size of order().
  virtual int64_t num_samples() const = 0;
  /// The samples, in order.
  virtual SampleOrder order() const = 0;
  /// The same as a list.
  std::vector<int64_t> indices() const;
};

/// This rank's share, with Python's names and defaults.
struct SamplerOptions {
  int64_t rank = 0;
  int64_t world = 1;
  bool shuffle = true;
  int64_t seed = 0;
  bool drop_last = false;
  /// Not in Python: sorts this many samples of an epoch's list at a time by length, longest first and last in
  /// turn, so that a batch has samples of similar length. 0 = off.
  int64_t bucket = 0;
  std::shared_ptr<const std::vector<int64_t>> lengths = {};  ///< of all samples; for `bucket`
};

/// A position inside an epoch, for any world size.
struct EpochPosition {
  int64_t epoch = 0;
  int64_t consumed = 0;  // samples, of all ranks together
};

/// torch.utils.data.DistributedSampler: the same indices for any size, world, seed, epoch, shuffle and
/// drop_last.
class DistributedSampler : public Sampler {
 public:
  DistributedSampler(int64_t size, SamplerOptions options);
  /// With the rank and the world of a Session or a Team.
  template <class Ranks>
  requires requires(const Ranks& ranks) { ranks.rank(), ranks.world(); }
  DistributedSampler(int64_t size, const Ranks& ranks, SamplerOptions options = {})
      : DistributedSampler(size, placed(options, ranks.rank(), ranks.world())) {}

  /// Starts at this epoch's first sample.
  void set_epoch(int64_t epoch) { position_ = {epoch, 0}; }
  /// As set by set_epoch() or resume().
  int64_t epoch() const { return position_.epoch; }
  /// Continues with the rest of an epoch, also from another world size, without missing or repeating a
  /// sample. As in every epoch, samples from the head of its list pad the last round unless drop_last is set.
  void resume(EpochPosition position);
  /// The job's position after each rank has taken `samples` of this pass.
  EpochPosition position_after(int64_t samples) const;

  int64_t num_samples() const override;
  SampleOrder order() const override;
  /// As given to the constructor.
  const SamplerOptions& options() const { return options_; }

 private:
  static SamplerOptions placed(SamplerOptions options, int64_t rank, int64_t world) {
    options.rank = rank;
    options.world = world;
    return options;
  }

  int64_t size_;
  SamplerOptions options_;
  EpochPosition position_;
};

/// For evaluation: each rank has a block of consecutive samples, without padding.
class ShardSampler : public Sampler {
 public:
  ShardSampler(int64_t size, int64_t rank, int64_t world);
  int64_t num_samples() const override { return end_ - begin_; }
  SampleOrder order() const override;

 private:
  int64_t size_, begin_, end_;
};

}  // namespace lockstep
