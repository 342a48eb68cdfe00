#pragma once
// Adapts a lockstep sampler to torch's data loaders.

#include <torch/data/samplers/base.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep {

/// A rank's samples in torch's loader: `torch::data::make_data_loader(set, TorchSampler(sampler), 64)`. Each
/// pass has the sampler's current order, so set_epoch() takes effect. The sampler must outlive the loader.
class TorchSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(const lockstep::Sampler& sampler) : sampler_(&sampler), order_(sampler.order()) {}

  /// Starts a new pass.
  void reset(std::optional<size_t> /*size*/ = std::nullopt) override {
    order_ = sampler_->order();
    taken_ = 0;
  }
  /// Returns the next samples, or nullopt at the end of the pass.
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const auto count = std::min(static_cast<int64_t>(batch_size), order_.size() - taken_);
    if (count == 0) return std::nullopt;
    std::vector<size_t> batch;
    for (int64_t i = 0; i < count; ++i) batch.push_back(static_cast<size_t>(order_[taken_++]));
    return batch;
  }
  /// Does nothing: save the sampler's position instead.
  void save(torch::serialize::OutputArchive& /*archive*/) const override {}
  /// Does nothing.
  void load(torch::serialize::InputArchive& /*archive*/) override {}

 private:
  const lockstep::Sampler* sampler_;
  SampleOrder order_;
  int64_t taken_ = 0;
};

}  // namespace lockstep
