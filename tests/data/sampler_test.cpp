#include "lockstep/data/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/data.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/torch_data.h"
#include "peer.h"

namespace lockstep {
namespace {

TEST(DistributedSampler, GivesPythonsIndicesForAThousandSettings) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torch");
  const auto seed = std::random_device{}();
  SCOPED_TRACE("sampler_peer.py seed " + std::to_string(seed));
  std::istringstream lines(test::output_of(python + " tests/data/sampler_peer.py " + std::to_string(seed)));
  std::string line;
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    std::istringstream words(line);
    int64_t size, epoch, count;
    SamplerOptions options;
    words >> size >> options.world >> options.rank >> options.seed >> epoch >> options.shuffle >>
        options.drop_last >> count;
    std::vector<int64_t> expected(count);
    for (auto& index : expected) words >> index;
    DistributedSampler sampler(size, options);
    sampler.set_epoch(epoch);
    ASSERT_EQ(sampler.num_samples(), count) << line;
    ASSERT_EQ(sampler.indices(), expected) << line;
  }
  EXPECT_EQ(cases, 1000);
}

TEST(DistributedSampler, HoldsNoListWhereNoShuffleIsAskedFor) {
  const int64_t size = 900'000'000;
  const auto before = mallinfo2().uordblks;
  DistributedSampler sampler(size, {.rank = 3, .world = 7, .shuffle = false});
  const auto order = sampler.order();
  EXPECT_EQ(order.size(), 128'571'429);
  EXPECT_EQ(order[0], 3);
  EXPECT_EQ(order[order.size() - 1], (3 + 7 * 128'571'428LL) % size);
  EXPECT_LT(mallinfo2().uordblks - before, size_t{1} << 16);
}

// Everything that all ranks take from a position on, in no order.
std::map<int64_t, int> taken_from(EpochPosition position, int64_t size, int64_t world, bool drop_last) {
  std::map<int64_t, int> times;
  for (int64_t rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(size, {.rank = rank, .world = world, .seed = 5, .drop_last = drop_last});
    sampler.resume(position);
    for (int64_t index : sampler.indices()) ++times[index];
  }
  return times;
}

TEST(DistributedSampler, GoesOnInsideAnEpochAsIfNeverStopped) {
  for (bool drop_last : {false, true}) {
    DistributedSampler whole(101, {.rank = 2, .world = 3, .seed = 5, .drop_last = drop_last});
    whole.set_epoch(4);
    const auto all = whole.indices();
    for (int64_t done : {0, 1, 16, 33}) {
      auto rest = whole;
      rest.resume(whole.position_after(done));
      EXPECT_EQ(rest.indices(), std::vector<int64_t>(all.begin() + done, all.end())) << done;
    }
  }
}

TEST(DistributedSampler, MissesNoSampleAndRepeatsNoneAtAnotherWorldSize) {
  const int64_t size = 103;
  for (int64_t old_world : {1, 2, 4, 5}) {
    for (int64_t new_world : {1, 2, 3, 7}) {
      for (int64_t done : {0, 3, 11}) {
        std::map<int64_t, int> times;
        EpochPosition position;
        for (int64_t rank = 0; rank < old_world; ++rank) {
          DistributedSampler sampler(size, {.rank = rank, .world = old_world, .seed = 5});
          sampler.set_epoch(9);
          const auto indices = sampler.indices();
          for (int64_t i = 0; i < done; ++i) ++times[indices[i]];
          position = sampler.position_after(done);
        }
        for (auto [index, count] : taken_from(position, size, new_world, false)) times[index] += count;
        int64_t extra = 0;
        EXPECT_EQ(static_cast<int64_t>(times.size()), size);
        for (auto [index, count] : times) extra += count - 1;
        // What a whole epoch repeats as well: the last round, filled up so that the ranks are equally long.
        const int64_t rest = size - position.consumed;
        EXPECT_EQ(extra, (new_world - rest % new_world) % new_world) << old_world << " to " << new_world;
      }
    }
  }
}

TEST(DistributedSampler, HasNothingLeftAfterThePaddingOfAnEpoch) {
  DistributedSampler sampler(5, {.world = 3});
  sampler.resume({.epoch = 0, .consumed = 6});
  EXPECT_EQ(sampler.num_samples(), 0);
  EXPECT_TRUE(sampler.indices().empty());
}

TEST(ShardSampler, PutsEachSampleOnExactlyOneRank) {
  for (int64_t size : {0, 1, 5, 10, 10'000}) {
    for (int64_t world : {1, 2, 3, 7, 12}) {
      std::vector<int64_t> all;
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto mine = ShardSampler(size, rank, world).indices();
        all.insert(all.end(), mine.begin(), mine.end());
      }
      ASSERT_EQ(static_cast<int64_t>(all.size()), size);
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(all[i], i);
    }
  }
}

TEST(DistributedSampler, RefusesARankOutsideItsWorld) {
  EXPECT_THROW(DistributedSampler(5, {.rank = 3, .world = 3}), Error);
  EXPECT_THROW(ShardSampler(5, -1, 3), Error);
}

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto number = torch::full({1}, static_cast<int64_t>(index));
    return {number, number * number};
  }
  std::optional<size_t> size() const override { return 10; }
};

using Indices = std::vector<int64_t>;

TEST(TorchSampler, GivesTorchsLoaderThisRanksShareOfEachEpoch) {
  DistributedSampler sampler(10, {.rank = 1, .world = 3, .seed = 7});
  auto loader = torch::data::make_data_loader(Squares().map(torch::data::transforms::Stack<>()),
                                              TorchSampler(sampler), 3);
  std::vector<Indices> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    auto& met = epochs.emplace_back();
    for (auto& batch : *loader)
      for (const auto& number : batch.data.unbind()) met.push_back(number.item<int64_t>());
    EXPECT_EQ(met, sampler.indices());
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

/// Sample i is the number i; workers dawdle differently, so that any disorder would show.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t> indices, bool) const override {
    ++made;
    std::this_thread::sleep_for(std::chrono::microseconds(indices[0] * 7919 % 300));
    for (int64_t index : indices)
      if (index == bad_) throw InputError("sample is damaged", "here");
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
    for ([[maybe_unused]] auto& batch : loader)
      if (++count == 2) break;
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
