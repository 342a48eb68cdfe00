// train.layout: auto measures both layouts on all ranks and takes the faster one.
#include "trainer/setup/setup.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "trainer/config/config_text.h"
#include "trainer/modes/autocast.h"
#include "trainer/modes/model.h"

namespace lockstep::train {
namespace {

bool is_worth_measuring(const Setup& setup) {
  const auto& train = setup.data.train;
  if (!train || train->size() == 0 || !setup.mesh->is_plain()) return false;
  return train->get(std::vector<int64_t>{0}).input.dim() == 4;
}

// The least seconds that a forward and a backward of the first batch take, with a model made for this alone.
double seconds_of_batch(const Setup& setup, bool last) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 4;  // the first one pays for libtorch's start
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(settings.data.batch_size, setup.data.train->size())));
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = setup.data.train->get(indices);
  auto input = batch.input.to(device);
  if (last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  const auto target = batch.target.to(device);
  LossOptions options;
  if (setup.data.class_weights.defined()) options.class_weights = setup.data.class_weights.to(device);
  const auto net = task_model(setup);
  if (last) to_channels_last(*net);
  net->to(device);
  net->train();
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    at::Tensor loss;
    {
      const Autocast scope(device.type(), autocast_type(settings.train.precision));
      loss = setup.task->loss(net->forward(input), target, options);
    }
    loss.backward();
    loss.item<float>();  // and whatever a GPU still does
    for (auto& parameter : net->parameters()) parameter.mutable_grad().reset();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

ImageLayout quicker(const Setup& setup) {
  using enum ImageLayout;
  if (!is_worth_measuring(setup)) return nchw;
  std::vector<double> both(2);
  setup.team->together([&] { both = {seconds_of_batch(setup, false), seconds_of_batch(setup, true)}; });
  setup.team->sum(both);
  const double ranks = setup.team->world();
  const bool last = both[1] < both[0];
  log::info(format("train.layout: auto chose {}: {:.3g} ms per batch, against {:.3g} ms in {}",
                   word_of(last ? channels_last : nchw), 1e3 * std::min(both[0], both[1]) / ranks,
                   1e3 * std::max(both[0], both[1]) / ranks, word_of(last ? nchw : channels_last)));
  return last ? channels_last : nchw;
}

}  // namespace

void settle_layout(Setup& setup) {
  auto& layout = setup.settings.train.layout;
  if (layout != ImageLayout::automatic) return;
  layout = quicker(setup);
  setup.config = config::to_yaml(setup.settings);
}

}  // namespace lockstep::train
