#include "lockstep/data/torch_data.h"

#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/types.h>

namespace lockstep {
namespace {

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto number = torch::full({1}, static_cast<int64_t>(index));
    return {number, number * number};
  }
  std::optional<size_t> size() const override { return 10; }
};

using Indices = std::vector<int64_t>;

void append(Indices& all, const at::Tensor& numbers) {
  for (int64_t i = 0; i < numbers.size(0); ++i) all.push_back(numbers[i].item<int64_t>());
}

TEST(TorchSampler, GivesTorchsLoaderThisRanksShareOfEachEpoch) {
  DistributedSampler sampler(10, {.rank = 1, .world = 3, .seed = 7});
  auto loader = torch::data::make_data_loader(Squares().map(torch::data::transforms::Stack<>()),
                                              TorchSampler(sampler), 3);
  std::vector<Indices> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    auto& met = epochs.emplace_back();
    for (auto& batch : *loader) append(met, batch.data);
    EXPECT_EQ(met, sampler.indices());
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

}  // namespace
}  // namespace lockstep
