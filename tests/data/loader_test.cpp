#include "lockstep/data/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Sample i is the number i; workers dawdle differently, so that any disorder would show.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t> indices, bool) const override {
    ++made;
    std::this_thread::sleep_for(std::chrono::microseconds(indices[0] * 7919 % 300));
    for (int64_t index : indices) {
      if (index == bad_) throw InputError("sample is damaged", "here");
    }
    return {at::tensor(indices, at::kFloat), at::tensor(indices, at::kLong)};
  }
  mutable std::atomic<int> made = 0;

 private:
  int64_t size_, bad_;
};

struct Pass {
  std::vector<int64_t> seen;
  std::vector<int64_t> sizes;
};

Pass run(Loader& loader) {
  Pass pass;
  for (auto& [x, y] : loader) {
    EXPECT_TRUE(at::equal(x, y.to(at::kFloat)));
    pass.sizes.push_back(y.size(0));
    for (int64_t i = 0; i < y.size(0); ++i) pass.seen.push_back(y[i].item<int64_t>());
  }
  return pass;
}

TEST(Loader, GivesTheSamplersOrderWhateverTheWorkers) {
  const auto set = std::make_shared<Numbers>(103);
  DistributedSampler sampler(103, {.rank = 1, .world = 2, .seed = 3});
  for (int64_t epoch : {0, 1}) {
    sampler.set_epoch(epoch);
    for (int64_t workers : {0, 1, 2, 5, 40}) {
      Loader loader(set, sampler, {.batch_size = 8, .workers = workers});
      const auto pass = run(loader);
      EXPECT_EQ(pass.seen, sampler.indices()) << workers;
      EXPECT_EQ(static_cast<int64_t>(pass.sizes.size()), loader.batches());
      EXPECT_EQ(pass.sizes.back(), 52 % 8);
    }
  }
}

TEST(Loader, DropsALastBatchThatIsNotFull) {
  DistributedSampler sampler(20, {});
  Loader loader(std::make_shared<Numbers>(20), sampler, {.batch_size = 6, .drop_last = true});
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(run(loader).sizes, (std::vector<int64_t>{6, 6, 6}));
}

TEST(Loader, BeginsAgainAfterAnEarlyBreak) {
  DistributedSampler sampler(60, {});
  Loader loader(std::make_shared<Numbers>(60), sampler, {.batch_size = 5, .workers = 3});
  for (int round = 0; round < 5; ++round) {
    int count = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      if (++count == 2) break;
    }
  }
  EXPECT_EQ(run(loader).seen, sampler.indices());
}

TEST(Loader, CarriesAnErrorToTheConsumerAtItsPlace) {
  DistributedSampler sampler(60, {.shuffle = false});
  for (int64_t workers : {0, 1, 4}) {
    Loader loader(std::make_shared<Numbers>(60, 33), sampler, {.batch_size = 10, .workers = workers});
    int good = 0;
    EXPECT_THROW(
        {
          for ([[maybe_unused]] auto& batch : loader) ++good;
        },
        InputError);
    EXPECT_EQ(good, 3) << workers;
  }
}

TEST(Loader, RunsNoFurtherAheadThanAsked) {
  const auto set = std::make_shared<Numbers>(1000);
  DistributedSampler sampler(1000, {});
  Loader loader(set, sampler, {.batch_size = 1, .workers = 2, .prefetch = 3});
  [[maybe_unused]] const auto it = loader.begin();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (set->made < 2 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(set->made, 1 + 6);
  EXPECT_GE(set->made, 2);  // and it does run ahead
}

TEST(Loader, RefusesImpossibleOptions) {
  DistributedSampler sampler(5, {});
  EXPECT_THROW(Loader(std::make_shared<Numbers>(5), sampler, {.batch_size = 0}), InputError);
  EXPECT_THROW(Loader(std::make_shared<Numbers>(5), sampler, {.workers = -1}), InputError);
}

}  // namespace
}  // namespace lockstep
