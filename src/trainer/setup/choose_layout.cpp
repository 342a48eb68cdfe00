#include "trainer/setup/choose_layout.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "trainer/config/config_text.h"
#include "trainer/modes/autocast.h"
#include "trainer/modes/model.h"

namespace lockstep::train {
namespace {

constexpr int kRounds = 3;  // after one that pays for libtorch's start
using Clock = std::chrono::steady_clock;

bool is_worth_measuring(const Setup& setup) {
  const auto& train = setup.data.train;
  if (!train || train->size() == 0 || !setup.mesh->is_plain()) return false;
  return train->get(std::vector<int64_t>{0}).input.dim() == 4;
}

Batch first_batch(const Setup& setup) {
  const auto& train = *setup.data.train;
  std::vector<int64_t> indices(static_cast<size_t>(std::min(setup.settings.data.batch_size, train.size())));
  std::iota(indices.begin(), indices.end(), 0);
  return train.get(indices);
}

// A model of its own in a layout, and a batch for it.
class Trial {
 public:
  Trial(const Setup& setup, const Batch& batch, bool last)
      : setup_(setup), net_(task_model(setup)), target_(batch.target.to(setup.team->device())) {
    if (last) to_channels_last(*net_);
    net_->to(setup.team->device());
    net_->train();
    const auto input = batch.input.to(setup.team->device());
    input_ = last ? input.contiguous(at::MemoryFormat::ChannelsLast) : input;
    if (setup.data.class_weights.defined())
      loss_.class_weights = setup.data.class_weights.to(setup.team->device());
  }

  double seconds() {
    const auto begin = Clock::now();
    at::Tensor loss;
    {
      const auto& settings = setup_.settings;
      const Autocast scope(setup_.team->device().type(), autocast_type(settings.train.precision));
      loss = setup_.task->loss(net_->forward(input_), target_, loss_);
    }
    loss.backward();
    loss.item<float>();  // and whatever a GPU still does
    for (auto& parameter : net_->parameters()) parameter.mutable_grad().reset();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  const Setup& setup_;
  std::shared_ptr<Net> net_;
  at::Tensor input_, target_;
  LossOptions loss_;
};

// In turn, so that what else the machine does falls on both.
std::vector<double> seconds_of_both(const Setup& setup) {
  const auto batch = first_batch(setup);
  Trial plain(setup, batch, false), last(setup, batch, true);
  plain.seconds(), last.seconds();
  std::vector<double> least = {plain.seconds(), last.seconds()};
  for (int round = 1; round < kRounds; ++round) {
    least[0] = std::min(least[0], plain.seconds());
    least[1] = std::min(least[1], last.seconds());
  }
  return least;
}

ImageLayout quicker(const Setup& setup) {
  using enum ImageLayout;
  if (!is_worth_measuring(setup)) return nchw;
  std::vector<double> both;
  setup.team->together([&] { both = seconds_of_both(setup); });
  setup.team->sum(both);
  const double ranks = setup.team->world();
  const bool last = both[1] < both[0];
  log::info(format("train.layout: auto is {}: {:.3g} ms for a batch, and {:.3g} ms in {}",
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
