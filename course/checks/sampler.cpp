// Chapter 5: sharing the data.
#include <algorithm>

#include "course/workshop/attempt.h"

namespace lockstep::workshop {
namespace {

// ranks take turns along the list, which begins again behind its end until all have as many
Row share_of_rank(const Row& list, int rank, int world) {
  const auto size = static_cast<int>(list.size());
  Row share;
  for (int at = rank; std::ssize(share) < (size + world - 1) / world; at += world)
    share.push_back(list[static_cast<size_t>(at % size)]);
  return share;
}

Row counted(int size) {
  Row list;
  for (int i = 0; i < size; ++i) list.push_back(i);
  return list;
}

CHECK_OF("sampler.1", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const int size : {12, 10, 2, 1})
      for (const auto& rank : run.ranks)
        rank.expect_numbers(
            format("of {}", size), share_of_rank(counted(size), rank.rank(), world),
            "let the ranks take turns, with equal counts: after the last sample the list begins again",
            {{rank.numbers(format("of {}", size)).empty(), "this rank takes no sample"}});
  }
}

// 12 samples: what DistributedSampler and Python's draw from seed 7 in the epochs 0, 1, 2 and 3
const Rows kEpochLists = {{3, 4, 0, 5, 7, 9, 11, 6, 8, 1, 10, 2},
                          {3, 10, 0, 6, 9, 4, 1, 7, 8, 2, 5, 11},
                          {10, 9, 6, 8, 0, 3, 7, 4, 1, 11, 2, 5},
                          {5, 2, 4, 7, 1, 9, 11, 0, 3, 8, 10, 6}};

CHECK_OF("sampler.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    // set_epoch(epoch + 1) serves as well
    const size_t first = run.ranks[0].numbers("epoch 0") == share_of_rank(kEpochLists[1], 0, world);
    for (const auto& rank : run.ranks) {
      for (size_t epoch = 0; epoch + 1 < kEpochLists.size(); ++epoch) {
        const auto& is = rank.numbers(format("epoch {}", epoch));
        rank.expect_numbers(
            format("epoch {}", epoch), share_of_rank(kEpochLists[epoch + first], rank.rank(), world),
            "draw one list on all ranks, from seed 7 and the epoch number: a resumed run needs it again",
            {{std::is_sorted(is.begin(), is.end()), "the list is not shuffled",
              "set .shuffle = true for training"},
             {epoch > 0 && is == rank.numbers("epoch 0"), "the same order as in epoch 0",
              "which call tells the sampler that a new epoch begins?"}});
      }
    }
  }
}

// the answers of a run, of which 1 is a right one; ranks may share the work in any even way
CHECK_OF("sampler.3", attempt) {
  const std::pair<int, std::string> runs[] = {{3, "0110111011"}, {2, "01001110110"}};  // main() has the first
  for (const auto& [world, answers] : runs) {
    const auto run = attempt.run({.world = world, .args = {answers}});
    const auto size = answers.size(), each = static_cast<size_t>(world);
    Row all;
    for (const auto& rank : run.ranks) {
      const auto& own = rank.numbers("looked at");
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    expect(all == counted(static_cast<int>(size)),
           format("with {} ranks and {} answers, the ranks look at {} in total", world, size, shown(all)),
           "count each sample once: only training may repeat one",
           {{all.size() == size * each, "each rank looks at all of them", "share the work"},
            {all.size() > size, "some are counted twice", "which sampler repeats nothing?"},
            {all.size() < size, "some are not counted", "which sampler leaves nothing out?"}});
    for (const auto& rank : run.ranks) {
      const auto count = rank.numbers("looked at").size();
      expect(count <= (size + each - 1) / each,
             format("with {} ranks, rank {} looks at {} of {} answers: the work is not shared", world,
                    rank.rank(), count, size));
      rank.expect_number(
          "share",
          static_cast<double>(std::count(answers.begin(), answers.end(), '1')) / static_cast<double>(size),
          "sum how many are right and how many were checked over all ranks: a mean of the ranks' means "
          "differs");
    }
  }
}

}  // namespace
}  // namespace lockstep::workshop
