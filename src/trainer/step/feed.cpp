#include "trainer/step/feed.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

class DataSource : public SampleSource {
 public:
  explicit DataSource(const Setup& setup) : setup_(setup) {}

  int64_t samples() const override { return setup_.data.train->size(); }
  Feed feed(const Settings& settings) const override {
    return Feed(settings, setup_.data.train, setup_.mesh->data());
  }
  bool is_shared() const override { return true; }
  std::string description() const override {
    const auto& data = setup_.data;
    const auto wanted = data.regression ? "one number each" : format("{} classes", data.class_names.size());
    return format("{} training samples of {}, {} for evaluation, {}", data.train->size(),
                  shape_in_words(data.input_shape), data.eval->size(), wanted);
  }

 private:
  const Setup& setup_;  // its data may move to the device later
};

}  // namespace

std::string shape_in_words(const std::vector<int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::unique_ptr<Actor> actor_of(const Setup& setup) {
  const Team& team = setup.mesh->data();
  std::unique_ptr<Actor> actor;
  setup.team->together([&] {
    actor = setup.task->actor(
        setup.settings.for_task(),
        {.rank = team.rank(), .world = team.world(), .sum = [&team](auto& values) { team.sum(values); }});
  });
  return actor;
}

std::unique_ptr<SampleSource> make_sample_source(const Setup& setup) {
  if (auto actor = actor_of(setup)) return make_acting(setup, std::move(actor));
  return std::make_unique<DataSource>(setup);
}

EpochPlan plan_epochs(const Settings& settings, int64_t samples, int world) {
  const auto& data = settings.data;
  const auto& train = settings.train;
  if (train.epochs < 1)
    throw InputError(format("train.epochs is {}: there is nothing to train", train.epochs), "train.epochs",
                     "set train.epochs to 1 or more");
  DistributedSampler sampler(samples, {.rank = 0, .world = world, .drop_last = data.drop_last});
  EpochPlan rounds;
  rounds.samples = sampler.num_samples();
  const auto up = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  rounds.batches =
      data.drop_last_batch ? rounds.samples / data.batch_size : up(rounds.samples, data.batch_size);
  if (rounds.batches == 0)
    throw InputError(format("data.batch_size {} is larger than a rank's share of the samples ({})",
                            data.batch_size, rounds.samples),
                     "data.batch_size",
                     "set data.drop_last_batch to false, reduce data.batch_size, or start fewer ranks");
  if (data.batch_size > rounds.samples)
    log::info(format("data.batch_size is {}, but a rank has {} samples: each epoch is one batch of {}",
                     data.batch_size, rounds.samples, rounds.samples));
  rounds.steps_per_epoch = up(rounds.batches, train.accumulate);
  rounds.total_steps = rounds.steps_per_epoch * train.epochs;
  if (train.max_steps > 0) rounds.total_steps = std::min(rounds.total_steps, train.max_steps);
  rounds.step_samples = data.batch_size * train.accumulate * world;
  return rounds;
}

LoaderOptions loader_options(const Settings& settings, at::Device device) {
  return {.batch_size = settings.data.batch_size,
          .workers = settings.data.workers,
          .pin_memory = settings.data.pin_memory && device.is_cuda(),
          .drop_last = false};
}

void draw_base_seed() {
  torch::empty({}, torch::kInt64).random_();
}

namespace {

DistributedSampler standing_at(DistributedSampler sampler, const TrainingState& state) {
  sampler.resume({state.epoch, state.consumed});
  return sampler;
}

// For a captured step, which gathers the samples itself.
class SampleNumbers : public Dataset {
 public:
  explicit SampleNumbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t>, bool) const override { return {}; }

 private:
  int64_t size_;
};

SamplerOptions sampling_of(const Settings& settings, const Dataset& data, int rank, int world) {
  SamplerOptions options = {.rank = rank,
                            .world = world,
                            .shuffle = settings.data.shuffle,
                            .seed = settings.run.seed,
                            .drop_last = settings.data.drop_last,
                            .bucket = settings.data.bucket};
  if (options.bucket == 0) return options;
  options.lengths = std::make_shared<const std::vector<int64_t>>(data.lengths());
  if (static_cast<int64_t>(options.lengths->size()) != data.size())
    throw InputError(
        format("data.bucket: the samples of task {} all have the same length", settings.task.name),
        "data.bucket", "remove it: only texts need it");
  return options;
}

// What a batch is made of lies on the device, and the thread that wants it can say so fastest.
LoaderOptions options_of(const Settings& settings, at::Device device) {
  auto options = loader_options(settings, device);
  options.drop_last = settings.data.drop_last_batch;
  if (settings.data.resident) options.workers = 0, options.pin_memory = false;
  return options;
}

}  // namespace

EpochFeed::EpochFeed(DistributedSampler sampler, std::shared_ptr<const Dataset> data, LoaderOptions options,
                     int64_t accumulate, TrainingState& state)
    : sampler_(standing_at(std::move(sampler), state)),
      loader_(std::move(data), sampler_, options),
      accumulate_(accumulate),
      left_(loader_.batches()),
      steps_(state.step_in_epoch + (left_ + accumulate - 1) / accumulate),
      next_(loader_.begin()) {
  state.epoch_trained = left_ == 0;
}

Batch EpochFeed::take() {
  if (!is_first_) ++next_;
  is_first_ = false;
  return std::move(*next_);
}

// A loop that waited here would keep a GPU from the rest of its step. Where no worker makes them, a batch is
// made when the loop comes to it: it may draw random numbers.
const Batch* EpochFeed::look_ahead() {
  if (!ahead_) {
    if (is_first_ || !loader_.is_ahead()) return nullptr;
    ahead_.emplace();
    try {
      ahead_->batch = take();
    } catch (...) {
      ahead_->error = std::current_exception();  // which is that of its turn
    }
  }
  return ahead_->error ? nullptr : &ahead_->batch;
}

Batch* EpochFeed::next_batch() {
  if (at_last()) return nullptr;
  auto ahead = std::exchange(ahead_, std::nullopt);
  if (ahead && ahead->error) std::rethrow_exception(ahead->error);
  current_ = ahead ? std::move(ahead->batch) : take();
  --left_;
  ++fetched_;
  const auto size = static_cast<int64_t>(current_.indices.size());
  samples_ += size;
  step_samples_ += size;
  return &current_;
}

bool EpochFeed::next_step() {
  size_ = std::min(accumulate_, left_);
  fetched_ = step_samples_ = 0;
  return size_ > 0;
}

void EpochFeed::advance(TrainingState& state) const {
  ++state.step;
  ++state.step_in_epoch;
  state.consumed = sampler_.position_after(samples_).consumed;
  state.epoch_trained = left_ == 0;
}

Feed::Feed(const Settings& settings, std::shared_ptr<const Dataset> data, int rank, int world,
           at::Device device)
    : data_(settings.train.graph ? std::make_shared<SampleNumbers>(data->size()) : std::move(data)),
      sampler_(data_->size(), sampling_of(settings, *data_, rank, world)),
      options_(options_of(settings, device)),
      accumulate_(settings.train.accumulate) {}

EpochFeed Feed::epoch(TrainingState& state) const {
  if (state.consumed == 0) draw_base_seed();
  const auto drawn = data_->in_epoch(state.epoch);
  return EpochFeed(sampler_, drawn ? drawn : data_, options_, accumulate_, state);
}

}  // namespace lockstep::train
