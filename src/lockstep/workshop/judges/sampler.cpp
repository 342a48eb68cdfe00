// Chapter 5: sharing the data.
#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/workshop/judge.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

// which ranks took each sample
std::map<int, std::vector<int>> takers(const Run& run, const std::string& name, int size) {
  std::map<int, std::vector<int>> found;
  for (int sample = 0; sample < size; ++sample) found[sample];
  for (const auto& rank : run.ranks) {
    for (const double sample : rank.numbers(name)) {
      if (!(sample >= 0 && sample < size))
        throw NotYet(
            format("with {} ranks and {} samples, rank {} takes {}: there is no sample of that number",
                   run.ranks.size(), size, rank.rank(), shown(sample)),
            "behind the last sample the list begins again");
      found[static_cast<int>(sample)].push_back(rank.rank());
    }
  }
  return found;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(format("rank {}", rank));
  return base::join(words, " and ");
}

std::string times(size_t count) {
  return count == 1 ? "once" : count == 2 ? "twice" : format("{} times", count);
}

// left out is told first, then too often, then too seldom
void require_counts(const std::map<int, std::vector<int>>& found, int world, const std::string& where) {
  const size_t size = found.size(), ranks_there = static_cast<size_t>(world);
  const size_t places = (size + ranks_there - 1) / ranks_there * ranks_there;
  const auto wanted = [&](int sample) {
    return places / size + (static_cast<size_t>(sample) < places % size ? 1 : 0);
  };
  for (const auto& [sample, ranks] : found) {
    if (ranks.empty())
      throw NotYet(format("{}, nobody takes sample {}", where, sample), "who takes the last ones?");
  }
  for (const bool often : {true, false}) {
    for (const auto& [sample, ranks] : found) {
      if (often ? ranks.size() <= wanted(sample) : ranks.size() >= wanted(sample)) continue;
      throw NotYet(
          format("{}, sample {} is taken {}, by {}", where, sample, times(ranks.size()), ranks_text(ranks)),
          format("it should be taken {}", times(wanted(sample))));
    }
  }
}

constexpr const char* kWhoMeets =
    "every rank calls the all-reduce of every step: what does the last step need?";

// the shares one by one, then together: counted before they are compared in order
void judge_shares(const Run& run, int size) {
  const auto name = format("of {}", size);
  const int world = static_cast<int>(run.ranks.size());
  const auto where = format("with {} ranks and {} samples", world, size);
  const auto found = takers(run, name, size);
  const auto& first = run.ranks.front().numbers(name);
  for (const auto& rank : run.ranks) {
    const auto count = rank.numbers(name).size();
    if (count != first.size())
      throw NotYet(
          format("{}, rank 0 takes {} and rank {} takes {}: the longer one's last step would wait for ever",
                 where, first.size(), rank.rank(), count),
          kWhoMeets);
  }
  require_counts(found, world, where);
  const int count = (size + world - 1) / world;
  for (const auto& rank : run.ranks) {
    Row wanted;
    for (int turn = 0; turn < count; ++turn) wanted.push_back((rank.rank() + turn * world) % size);
    if (rank.numbers(name) != wanted)
      throw NotYet(format("{}, rank {} takes {}, and DistributedSampler gives it {}: ranks take turns", where,
                          rank.rank(), shown(rank.numbers(name)), shown(wanted)));
  }
}

LOCKSTEP_JUDGE("sampler.1", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const int size : {12, 10, 2, 1}) judge_shares(run, size);
  }
}

// ranks take turns along the epoch's list, so the list can be told from their shares
Row list_of(const Run& run, const std::string& name) {
  Row list;
  for (size_t turn = 0; turn < run.ranks.front().numbers(name).size(); ++turn) {
    for (const auto& rank : run.ranks) {
      const auto& mine = rank.numbers(name);
      if (turn < mine.size()) list.push_back(mine[turn]);
    }
  }
  return list;
}

// two ranks that draw apart take some samples twice and leave out others: the first is told
void require_each_once(const Run& run, int epoch, int size) {
  const auto found = takers(run, format("epoch {}", epoch), size);
  const auto think = "the ranks share one list: all must draw it from the same seed and the same epoch";
  for (const auto& [sample, ranks] : found) {
    if (ranks.size() > 1)
      throw NotYet(format("with {} ranks, sample {} is taken twice in epoch {}, by {}", run.ranks.size(),
                          sample, epoch, ranks_text(ranks)),
                   think);
  }
  for (const auto& [sample, ranks] : found) {
    if (ranks.empty())
      throw NotYet(
          format("with {} ranks, nobody takes sample {} in epoch {}", run.ranks.size(), sample, epoch),
          think);
  }
}

void judge_epochs(const Run& run) {
  constexpr int kSize = 12, kEpochs = 3;
  std::vector<Row> lists;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto name = format("epoch {}", epoch);
    require_each_once(run, epoch, kSize);
    lists.push_back(list_of(run, name));
  }
  if (std::is_sorted(lists[0].begin(), lists[0].end()))
    throw NotYet(format("the list of epoch 0 is not shuffled: {}", shown(lists[0])),
                 "training wants .shuffle = true");
  for (int epoch = 1; epoch < kEpochs; ++epoch) {
    const auto same = std::find(lists.begin(), lists.begin() + epoch, lists[static_cast<size_t>(epoch)]);
    if (same != lists.begin() + epoch)
      throw NotYet(format("epoch {} has the same order as epoch {}: rank 0 takes {}", epoch,
                          same - lists.begin(), shown(run.ranks[0].numbers(format("epoch {}", epoch)))),
                   "who tells the sampler that another epoch begins?");
  }
}

LOCKSTEP_JUDGE("sampler.2", attempt) {
  for (const int world : {2, 3}) judge_epochs(attempt.run({.world = world}));
}

const Row kRight = {0, 1, 1, 0, 1, 1, 1, 0, 1, 1};
constexpr double kSum = 7;

// what the ranks' own shares would be: blocks as even as can be
Row blocks(int world) {
  Row shares;
  const int size = static_cast<int>(kRight.size());
  for (int rank = 0, begin = 0; rank < world; ++rank) {
    const int count = size / world + (rank < size % world ? 1 : 0);
    const auto first = kRight.begin() + begin;
    shares.push_back(std::accumulate(first, first + count, 0.0) / count);
    begin += count;
  }
  return shares;
}

void judge_looks(const Run& run) {
  const double size = static_cast<double>(kRight.size());
  double all = 0;
  for (const auto& rank : run.ranks) all += rank.number("looked at");
  const auto where = format("with {} ranks", run.ranks.size());
  if (all == size * static_cast<double>(run.ranks.size()))
    throw NotYet(format("{}, each rank looks at all {}", where, shown(size)),
                 "share the work: each answer is one rank's");
  if (all > size)
    throw NotYet(format("{}, they look at {} answers, and there are {}: {} counted twice", where, shown(all),
                        shown(size), all - size == 1 ? "one is" : format("{} are", shown(all - size))),
                 "training can bear a sample twice, a count cannot: which sampler repeats nothing?");
  if (all < size)
    throw NotYet(format("{}, they look at {} answers, and there are {}: the rest is counted by nobody", where,
                        shown(all), shown(size)),
                 "which sampler leaves nothing out?");
}

void judge_share(const RankRun& rank, int world) {
  const double is = rank.number("share"), wanted = kSum / static_cast<double>(kRight.size());
  if (near(is, wanted)) return;
  const auto what = format("with {} ranks, rank {} says that {} are right, and it is {}", world, rank.rank(),
                           shown(is), shown(wanted));
  const auto own = blocks(world);
  if (near(is, std::accumulate(own.begin(), own.end(), 0.0) / world))
    throw NotYet(what + ": that is a mean of the ranks' means",
                 "a rank with 3 answers counts there as much as one with 4");
  if (near(is, own[static_cast<size_t>(rank.rank())]))
    throw NotYet(what + ": that is the share of its own answers", "the other ranks' counts have not come in");
  throw NotYet(what);
}

LOCKSTEP_JUDGE("sampler.3", attempt) {
  for (const int world : {3, 2}) {
    const auto run = attempt.run({.world = world});
    judge_looks(run);
    for (const auto& rank : run.ranks) judge_share(rank, world);
  }
}

}  // namespace
}  // namespace lockstep::workshop
