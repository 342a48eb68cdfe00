#pragma once
// Which samples a rank takes, and in which order: index for index Python's, and resumable inside an epoch.

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// A rank's sample indices for one pass: random access, computed on demand where no shuffle is asked for.
class SampleOrder {
 public:
  /// Every `stride`-th place of an epoch's list from `first` on; place p holds list[p % size].
  SampleOrder(int64_t first, int64_t stride, int64_t count, int64_t size)
      : first_(first), stride_(stride), count_(count), size_(size) {}
  explicit SampleOrder(std::vector<int64_t> indices);

  /// How many samples the rank takes.
  int64_t size() const { return count_; }
  int64_t operator[](int64_t place) const {
    return indices_ ? (*indices_)[place] : (first_ + place * stride_) % size_;
  }

 private:
  int64_t first_ = 0;
  int64_t stride_ = 1;
  int64_t count_ = 0;
  int64_t size_ = 1;
  std::shared_ptr<const std::vector<int64_t>> indices_;  // set where the order is a stored one
};

/// What a Loader asks of a sampler.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// How many samples order() holds.
  virtual int64_t num_samples() const = 0;
  /// Which samples come, in order.
  virtual SampleOrder order() const = 0;
  /// The same as a list.
  std::vector<int64_t> indices() const;
};

/// Which share of the samples is this rank's, with Python's names and defaults.
struct SamplerOptions {
  int64_t rank = 0;
  int64_t world = 1;
  bool shuffle = true;
  int64_t seed = 0;
  bool drop_last = false;
  /// Not Python's: so many samples of an epoch's list at a time are put in the order of their lengths, the
  /// longest first and last in turn, so that batches hold samples of one length. 0 = as the list has them.
  int64_t bucket = 0;
  std::shared_ptr<const std::vector<int64_t>> lengths = {};  ///< of all samples; for `bucket`
};

/// A place inside an epoch that means the same at any world size.
struct EpochPosition {
  int64_t epoch = 0;
  int64_t consumed = 0;  // samples that all ranks together have taken
};

/// torch.utils.data.DistributedSampler: the same indices for any size, world, seed, epoch, shuffle and
/// drop_last.
class DistributedSampler : public Sampler {
 public:
  DistributedSampler(int64_t size, SamplerOptions options);
  /// This rank's share among the ranks of a Session or a Team, which say `rank` and `world`.
  template <class Ranks>
  requires requires(const Ranks& ranks) { ranks.rank(), ranks.world(); }
  DistributedSampler(int64_t size, const Ranks& ranks, SamplerOptions options = {})
      : DistributedSampler(size, placed(options, ranks.rank(), ranks.world())) {}

  /// From this epoch's first sample.
  void set_epoch(int64_t epoch) { position_ = {epoch, 0}; }
  /// The one set, or the one that resume() went on with.
  int64_t epoch() const { return position_.epoch; }
  /// The rest of an epoch, also one begun at another world size: no sample of it twice, none missed. As in
  /// every epoch, samples from the head of the epoch's list fill up the last round unless drop_last is set.
  void resume(EpochPosition position);
  /// Where the job is once each rank has taken `samples` more of this pass.
  EpochPosition position_after(int64_t samples) const;

  int64_t num_samples() const override;
  SampleOrder order() const override;
  /// What it was made with.
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

/// Evaluation: a block of consecutive samples each rank, each sample on exactly one rank, nothing padded.
class ShardSampler : public Sampler {
 public:
  ShardSampler(int64_t size, int64_t rank, int64_t world);
  int64_t num_samples() const override { return end_ - begin_; }
  SampleOrder order() const override;

 private:
  int64_t size_, begin_, end_;
};

}  // namespace lockstep
