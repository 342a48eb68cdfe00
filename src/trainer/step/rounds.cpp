#include "trainer/step/rounds.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {

Rounds plan_rounds(const Settings& settings, int64_t samples, int world) {
  const auto& data = settings.data;
  const auto& train = settings.train;
  if (train.epochs < 1) {
    throw InputError(format("train.epochs is {}: there is nothing to train", train.epochs), "train.epochs",
                     "set train.epochs to 1 or more");
  }
  DistributedSampler sampler(samples, {.rank = 0, .world = world, .drop_last = data.drop_last});
  Rounds rounds;
  rounds.samples = sampler.num_samples();
  const auto up = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  rounds.batches =
      data.drop_last_batch ? rounds.samples / data.batch_size : up(rounds.samples, data.batch_size);
  if (rounds.batches == 0)
    throw InputError(format("an epoch has no batch of {}: {} samples over {} ranks are {} each",
                            data.batch_size, samples, world, rounds.samples),
                     "data.batch_size",
                     "set data.drop_last_batch to false, a smaller data.batch_size, or start fewer ranks");
  if (data.batch_size > rounds.samples)
    log::info(format("data.batch_size is {}, but a rank has {} samples: an epoch is one batch of {}",
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

}  // namespace lockstep::train
