#pragma once
// Between torch::data and this library: a sampler's order for torch's loaders, torch's data sets for ours.

#include <torch/data/datasets/base.h>
#include <torch/data/samplers/base.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

/// A rank's share in torch's loader: `torch::data::make_data_loader(set, TorchSampler(sampler), 64)`. Each
/// pass has the sampler's order of that moment, so set_epoch() counts; the sampler must outlive the loader.
class TorchSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(const lockstep::Sampler& sampler) : sampler_(&sampler), order_(sampler.order()) {}

  /// A new pass.
  void reset(std::optional<size_t> /*size*/ = std::nullopt) override {
    order_ = sampler_->order();
    taken_ = 0;
  }
  /// The next samples; none when the pass is over.
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const auto count = std::min(static_cast<int64_t>(batch_size), order_.size() - taken_);
    if (count == 0) return std::nullopt;
    std::vector<size_t> batch;
    for (int64_t i = 0; i < count; ++i) batch.push_back(static_cast<size_t>(order_[taken_++]));
    return batch;
  }
  /// Nothing: a checkpoint keeps the sampler itself.
  void save(torch::serialize::OutputArchive& /*archive*/) const override {}
  /// Nothing, too.
  void load(torch::serialize::InputArchive& /*archive*/) override {}

 private:
  const lockstep::Sampler* sampler_;
  SampleOrder order_;
  int64_t taken_ = 0;
};

/// A data set of torch::data, of known size, with or without Stack: `lockstep::loader(TorchDataset(set),
/// sampler)`. Threads that read at once have a copy of it each, as in torch's loader.
template <class Set>
class TorchDataset : public Dataset {
 public:
  explicit TorchDataset(Set set) : pool_(std::make_shared<Pool>(std::move(set))) {}

  int64_t size() const override { return static_cast<int64_t>(pool_->first.size().value()); }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override {
    const std::vector<size_t> wanted(indices.begin(), indices.end());
    auto set = pool_->take();
    auto examples = set->get_batch(wanted);
    pool_->give_back(std::move(set));
    Batch batch = stacked(examples);
    if (pinned) batch.input = batch.input.pin_memory();
    return batch;
  }

 private:
  struct Pool {
    explicit Pool(Set set) : first(std::move(set)) {}
    std::unique_ptr<Set> take() {
      const std::lock_guard<std::mutex> guard(mutex);
      if (free.empty()) return std::make_unique<Set>(first);
      auto set = std::move(free.back());
      free.pop_back();
      return set;
    }
    void give_back(std::unique_ptr<Set> set) {
      const std::lock_guard<std::mutex> guard(mutex);
      free.push_back(std::move(set));
    }
    Set first;
    std::mutex mutex;
    std::vector<std::unique_ptr<Set>> free;
  };

  template <class Examples>
  static Batch stacked(Examples& examples) {
    if constexpr (requires { examples.data; }) {
      return {examples.data, examples.target};
    } else {
      std::vector<at::Tensor> inputs, targets;
      for (auto& example : examples) {
        inputs.push_back(example.data);
        targets.push_back(example.target);
      }
      return {at::stack(inputs), at::stack(targets)};
    }
  }

  std::shared_ptr<Pool> pool_;  // shared by copies
};

}  // namespace lockstep
