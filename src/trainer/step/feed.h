#pragma once
// What a rank is fed: an epoch's batches step by step, from wherever in the epoch a run stands.

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/data/loader.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/step/training_state.h"

namespace lockstep::train {

class EpochFeed;

/// The batches of one optimiser step; each is fetched when the loop comes to it, and none ahead of it.
class StepBatches {
 public:
  StepBatches(EpochFeed& epoch, int64_t size) : epoch_(&epoch), size_(size) {}

  int64_t size() const { return size_; }
  /// The epoch's next batch, of this step or the one after it, while the loop is still at the one before;
  /// null where there is none, or none is made yet: it never waits.
  const Batch* look_ahead();
  /// Of those fetched so far.
  int64_t samples() const { return samples_; }
  /// Does the loop stand at the last one?
  bool at_last() const { return fetched_ == size_; }

  class iterator {
   public:
    explicit iterator(StepBatches& batches) : batches_(&batches) {}
    Batch& operator*() const { return *batches_->current_; }
    iterator& operator++() { return batches_->fetch(), *this; }
    bool operator==(std::default_sentinel_t) const { return !batches_->current_; }

   private:
    StepBatches* batches_;
  };
  iterator begin() { return fetch(), iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  void fetch();

  EpochFeed* epoch_;
  int64_t size_, fetched_ = 0, samples_ = 0;
  Batch* current_ = nullptr;
};

/// What is left of one epoch: `for (auto& batches : epoch)` goes from step to step.
class EpochFeed {
 public:
  EpochFeed(DistributedSampler sampler, std::shared_ptr<const Dataset> data, LoaderOptions options,
            int64_t accumulate, TrainingState& state);
  EpochFeed(const EpochFeed&) = delete;
  EpochFeed& operator=(const EpochFeed&) = delete;

  /// This rank's samples, those that were taken before it left out.
  SampleOrder order() const { return loader_.order(); }
  /// Of the whole epoch, those that were taken before it included.
  int64_t steps() const { return steps_; }
  /// Moves the state past the step whose batches were fetched last.
  void advance(TrainingState& state) const;

  class iterator {
   public:
    explicit iterator(EpochFeed& epoch) : epoch_(&epoch) {}
    StepBatches& operator*() const { return epoch_->step_; }
    iterator& operator++() { return epoch_->next_step(), *this; }
    bool operator==(std::default_sentinel_t) const { return epoch_->step_.size() == 0; }

   private:
    EpochFeed* epoch_;
  };
  iterator begin() { return iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class StepBatches;
  // What the loader gave before its turn.
  struct Ahead {
    Batch batch = {};
    std::exception_ptr error = {};
  };
  Batch& fetch();
  Batch take();
  const Batch* look_ahead();
  void next_step();

  const DistributedSampler sampler_;
  Loader loader_;
  const int64_t accumulate_;
  int64_t left_;         // batches
  int64_t samples_ = 0;  // taken
  const int64_t steps_;
  StepBatches step_;
  Loader::iterator next_;
  bool is_first_ = true;
  std::optional<Ahead> ahead_;
  Batch current_;
};

class Feed {
 public:
  Feed(const Settings& settings, std::shared_ptr<const Dataset> data, int rank, int world, at::Device device);
  /// This rank's share.
  Feed(const Settings& settings, std::shared_ptr<const Dataset> data, const Team& team)
      : Feed(settings, std::move(data), team.rank(), team.world(), team.device()) {}

  /// The rest of the epoch that the state is in; where nothing is left of it, the state learns that. At
  /// an epoch's start one number is drawn, as Python does.
  EpochFeed epoch(TrainingState& state) const;

 private:
  std::shared_ptr<const Dataset> data_;
  DistributedSampler sampler_;
  LoaderOptions options_;
  int64_t accumulate_;
};

}  // namespace lockstep::train
