#include "trainer/step/evaluate.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/data/loader.h"
#include "trainer/modes/autocast.h"
#include "trainer/step/step.h"

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
    throw InputError(format("an epoch has no full batch of {}: {} samples over {} ranks are {} each",
                            data.batch_size, samples, world, rounds.samples),
                     "data.batch_size",
                     "set data.drop_last_batch to false, a smaller data.batch_size, or start fewer ranks");
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

// Every rank counts with rank 0's statistics, which are the ones a checkpoint holds.
void share_buffers(const Team& team, Net& net) {
  if (!team.group()) return;
  for (auto& buffer : net.buffers()) {
    std::vector<at::Tensor> one{buffer};
    team.group()->broadcast(one)->wait();
  }
}

// Batches of the rank with the most of them: shares differ by a sample, and all ranks ask as often.
int64_t most_batches(int64_t samples, int world, int64_t batch_size) {
  const int64_t share = (samples + world - 1) / world;
  return (share + batch_size - 1) / batch_size;
}

}  // namespace

std::unique_ptr<Metrics> evaluate(const Team& team, Net& net, const Task& task, const TaskData& data,
                                  const Settings& settings, const CutShort& cut_short, WorstSamples* worst) {
  const torch::NoGradGuard no_grad;
  const ShardSampler sampler(data.eval->size(), team.rank(), team.world());
  Loader loader(data.eval, sampler, loader_options(settings, team.device()));
  LossOptions loss;
  loss.reduction = at::Reduction::Sum;
  if (data.class_weights.defined()) loss.class_weights = data.class_weights.to(team.device());
  auto metrics = task.metrics(data);
  if (settings.ddp.broadcast_buffers) share_buffers(team, net);
  draw_base_seed();
  const EvaluationMode mode(net);
  const auto measure = [&](const Batch& batch) {
    const auto input = placed(net, batch.input, team.device(), settings.train.layout);
    const Autocast scope(team.device().type(), autocast_type(settings.train.precision));
    const auto output = net.forward(input);
    const auto target = batch.target.to(output.device());  // of the last stage
    if (loss.class_weights.defined()) loss.class_weights = loss.class_weights.to(output.device());
    const LossSum losses{task.loss(output, target, loss).item<double>(),
                         weight_of(target, loss.class_weights)};
    const auto answer = output.to(torch::kCPU);
    metrics->add(answer, batch.target, batch.indices, losses);
    if (worst) worst->add(answer, batch.target, batch.indices);
  };
  auto batch = loader.begin();
  const int64_t rounds = most_batches(data.eval->size(), team.world(), settings.data.batch_size);
  for (int64_t round = 1; round <= rounds; ++round) {
    if (batch != loader.end()) {
      measure(*batch);
      ++batch;
    }
    if (cut_short && cut_short(round)) return nullptr;
  }
  auto sums = metrics->sums();
  team.sum(sums);
  return metrics;
}

double weight_of(const at::Tensor& target, const at::Tensor& class_weights) {
  if (!class_weights.defined()) return static_cast<double>(target.size(0));
  return class_weights.index_select(0, target).sum(torch::kFloat64).item<double>();
}

bool is_evaluation_scheduled(const TrainSettings& train, int64_t epoch) {
  return train.eval_every > 0 && (epoch + 1) % train.eval_every == 0;
}

std::optional<double> value_of(const std::vector<std::pair<std::string, double>>& values,
                               const std::string& name) {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  return std::nullopt;
}

}  // namespace lockstep::train
