#include "lockstep/train/feed.h"

#include <algorithm>

#include "lockstep/train/rounds.h"

namespace lockstep::train {
namespace {

DistributedSampler standing_at(DistributedSampler sampler, const TrainingState& state) {
  sampler.resume({state.epoch, state.consumed});
  return sampler;
}

}  // namespace

void StepBatches::fetch() {
  current_ = fetched_ < size_ ? &epoch_->fetch() : nullptr;
  if (!current_) return;
  ++fetched_;
  samples_ += current_->input.size(0);
}

EpochFeed::EpochFeed(DistributedSampler sampler, std::shared_ptr<const Dataset> data, LoaderOptions options,
                     int64_t accumulate, TrainingState& state)
    : sampler_(standing_at(std::move(sampler), state)),
      loader_(std::move(data), sampler_, options),
      accumulate_(accumulate),
      left_(loader_.batches()),
      steps_(state.step_in_epoch + (left_ + accumulate - 1) / accumulate),
      step_(*this, std::min(accumulate, left_)),
      next_(loader_.begin()) {
  state.epoch_trained = left_ == 0;
}

Batch& EpochFeed::fetch() {
  if (!is_first_) ++next_;
  is_first_ = false;
  --left_;
  samples_ += next_->input.size(0);
  return *next_;
}

void EpochFeed::next_step() {
  step_ = StepBatches(*this, std::min(accumulate_, left_));
}

void EpochFeed::advance(TrainingState& state) const {
  ++state.step;
  ++state.step_in_epoch;
  state.consumed = sampler_.position_after(samples_).consumed;
  state.epoch_trained = left_ == 0;
}

Feed::Feed(const Settings& settings, std::shared_ptr<const Dataset> data, int rank, int world,
           at::Device device)
    : data_(std::move(data)),
      sampler_(data_->size(), {.rank = rank,
                               .world = world,
                               .shuffle = settings.data.shuffle,
                               .seed = settings.run.seed,
                               .drop_last = settings.data.drop_last}),
      options_(loader_options(settings, device)),
      accumulate_(settings.train.accumulate) {
  options_.drop_last = settings.data.drop_last_batch;
}

EpochFeed Feed::epoch(TrainingState& state) const {
  if (state.consumed == 0) draw_base_seed();
  return EpochFeed(sampler_, data_, options_, accumulate_, state);
}

}  // namespace lockstep::train
