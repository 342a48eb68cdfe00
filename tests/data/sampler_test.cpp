#include "lockstep/data/sampler.h"

#include <malloc.h>

#include <map>
#include <random>

#include "lockstep/base/error.h"
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

}  // namespace
}  // namespace lockstep
