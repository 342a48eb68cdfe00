// One process of `bench dp-vs-ddp`: a few steps of a config's training, measured.
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/identify.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/device_memory.h"
#include "tools/bench/dp_vs_ddp.h"
#include "tools/bench/measure.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/step/step.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kWarmUp = 3;  // steps: libtorch's own start, DDP's buckets
constexpr int64_t kInputs = 64, kOutputs = 20'000, kSamples = 256;

std::vector<double> as_doubles(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

train::Command command_of_way(const std::string& way, const DpVsDdp& wanted) {
  train::Command command;
  command.config = wanted.config;
  command.sets = wanted.sets;
  command.launcher = "none";
  const auto set = [&command](const std::string& text) { command.sets.push_back(text); };
  set("train.accumulate=1");
  if (way == "ddp") {
    command.launcher = "torchrun";
    set("train.mode=ddp");
    return command;
  }
  set("train.mode=data_parallel");
  set(format("data_parallel.devices={}", wanted.devices));
  set(format("data_parallel.loss_in_forward={}", way == "dp, loss inside"));
  return command;
}

// The batch of the config is that of one rank; DataParallel takes the batches of all.
void widen_batch(train::Command& command, int64_t devices) {
  const auto file = config::read_config_text(command.config);
  const auto loaded =
      config::load_settings(file.text, file.name, command.sets, launch::current_environment());
  command.sets.push_back(format("data.batch_size={}", loaded.settings.data.batch_size * devices));
}

struct Head : torch::nn::Cloneable<Head> {
  Head() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(kInputs, kOutputs)); }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{nullptr};
};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

DpVsDdpFound train_part(const std::string& way, const DpVsDdp& wanted) {
  auto command = command_of_way(way, wanted);
  if (way != "ddp") widen_batch(command, wanted.devices);
  auto setup = train::set_up(command);
  const auto& team = *setup.team;
  const auto device = team.device();
  parallel::DeviceMemory memory(way == "ddp" ? std::vector{device}
                                             : devices_like(device, static_cast<int>(wanted.devices)));
  auto learner = train::make_learner(setup);
  if (!learner.source->is_shared())
    throw InputError(
        format("task {} acts, and each rank of DDP learns from samples of its own", setup.settings.task.name),
        "task.name", "take a config with a data set; lockstep bench step measures this one");
  train::TrainingStep step(setup, learner);
  const train::Feed feed = learner.source->feed(setup.settings);
  train::TrainingState state;
  train::PhaseClock clock;
  train::LossTrace losses;
  DpVsDdpFound found;
  found.batch = learner.rounds.step_samples;
  auto epoch = feed.epoch(state);
  auto begin = Clock::now();
  for (auto& batches : epoch) {
    step.run(++state.step, batches, losses, clock);
    losses.read_pending();
    const auto now = Clock::now();
    found.losses.push_back(losses.last());
    if (state.step > kWarmUp) found.seconds.push_back(std::chrono::duration<double>(now - begin).count());
    // without the old buckets, which DDP has replaced and gloo may still hold
    if (state.step == kWarmUp) memory.restart();
    if (state.step == kWarmUp + wanted.steps) break;
    begin = now;
  }
  if (found.seconds.empty())
    throw InputError("an epoch has too few steps to measure", wanted.config, "take a smaller batch");
  team.sum(found.losses);
  for (auto& loss : found.losses) loss /= team.world();
  team.max(found.seconds);
  for (const auto& text : team.all_gather(format("{}", memory.peaks()[0])))
    found.peaks.push_back(std::stod(text));
  if (way != "ddp") found.peaks = as_doubles(memory.peaks());
  return found;
}

DpVsDdpFound wide_head(bool loss_inside, int64_t devices) {
  const auto places = devices_like(visible_devices().front(), static_cast<int>(devices));
  parallel::DeviceMemory memory(places);
  torch::manual_seed(0);
  DpVsDdpFound found;
  found.batch = kSamples;
  const auto model = data_parallel(Head(), places);
  const auto input = torch::randn({kSamples, kInputs}).to(places.front());
  const auto target = torch::randint(kOutputs, {kSamples}).to(places.front());
  for (int step = 0; step < 3; ++step) {  // the first takes its devices one by one
    memory.restart();
    model->zero_grad();
    const auto loss =
        loss_inside ? model->loss(input, target, loss_of) : loss_of(model->forward(input), target);
    loss.backward();
    found.losses.push_back(loss.item<double>());
  }
  found.peaks = as_doubles(memory.peaks());
  return found;
}

}  // namespace

std::string outcome_of(const std::string& way, const DpVsDdp& wanted) {
  return base::pack_outcome([&] {
    const auto found =
        way.starts_with("wide") ? wide_head(way == kWide[1], wanted.devices) : train_part(way, wanted);
    return nlohmann::json({{"losses", found.losses},
                           {"seconds", found.seconds},
                           {"peaks", found.peaks},
                           {"batch", found.batch}})
        .dump();
  });
}

// A loss that is not finite is null in JSON.
DpVsDdpFound read_outcome(const std::string& text) {
  const auto json = nlohmann::json::parse(base::unpack_outcome(text));
  const auto numbers = [&](const char* key) {
    std::vector<double> numbers;
    for (const auto& value : json.at(key)) numbers.push_back(value.is_null() ? NAN : value.get<double>());
    return numbers;
  };
  return {numbers("losses"), numbers("seconds"), numbers("peaks"), json.at("batch").get<int64_t>()};
}

}  // namespace lockstep::bench
