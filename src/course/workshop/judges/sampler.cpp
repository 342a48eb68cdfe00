// Chapter 5: sharing the data.
#include <algorithm>
#include <map>
#include <numeric>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

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
    if (!ranks.empty()) continue;
    const bool is_last = static_cast<size_t>(sample) >= size / ranks_there * ranks_there;
    throw NotYet(format("{}, nobody takes sample {}", where, sample),
                 is_last ? "who takes the last ones?" : "rank r begins at place r: where does it go on?");
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
  const bool any_taken =
      std::any_of(found.begin(), found.end(), [](const auto& taken) { return !taken.second.empty(); });
  if (!any_taken && size >= world)
    throw NotYet(where + ", no rank takes any sample", "share_of() is to be filled: mine.push_back(...)");
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
  const auto think =
      "the ranks share one list: all must draw it from the same seed and the same epoch's number";
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

// what DistributedSampler and Python's draw from seed 7, from epoch kFirstKnown on
constexpr int kFirstKnown = -2;
const std::vector<Row> kKnownLists = {
    {11, 0, 9, 6, 10, 3, 4, 5, 8, 7, 1, 2}, {2, 9, 5, 0, 6, 3, 11, 8, 7, 1, 4, 10},
    {3, 4, 0, 5, 7, 9, 11, 6, 8, 1, 10, 2}, {3, 10, 0, 6, 9, 4, 1, 7, 8, 2, 5, 11},
    {10, 9, 6, 8, 0, 3, 7, 4, 1, 11, 2, 5}, {5, 2, 4, 7, 1, 9, 11, 0, 3, 8, 10, 6}};

constexpr const char* kAgain =
    "a run that goes on in the middle needs this list again: the same seed and the same epoch make the same "
    "list";

int epoch_of(const Row& list, int epoch) {
  const auto found = std::find(kKnownLists.begin(), kKnownLists.end(), list);
  if (found == kKnownLists.end())
    throw NotYet(format("epoch {} has a list that seed 7 makes of no epoch near it", epoch), kAgain);
  return kFirstKnown + static_cast<int>(found - kKnownLists.begin());
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
  Row drawn_for;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    drawn_for.push_back(epoch_of(lists[static_cast<size_t>(epoch)], epoch));
  for (int epoch = 1; epoch < kEpochs; ++epoch) {
    const auto same = std::find(lists.begin(), lists.begin() + epoch, lists[static_cast<size_t>(epoch)]);
    if (same != lists.begin() + epoch)
      throw NotYet(format("epoch {} has the same order as epoch {}: rank 0 takes {}", epoch,
                          same - lists.begin(), shown(run.ranks[0].numbers(format("epoch {}", epoch)))),
                   "who tells the sampler that another epoch begins?");
  }
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    if (const double is = drawn_for[static_cast<size_t>(epoch)]; is != epoch)
      throw NotYet(format("epoch {} has the list of epoch {}, with seed 7", epoch, is), kAgain);
  }
}

LOCKSTEP_JUDGE("sampler.2", attempt) {
  for (const int world : {2, 3}) judge_epochs(attempt.run({.world = world}));
}

// the answers of a run: 1 is a right one
struct Given {
  std::string answers;
  double right(int begin, int count) const {
    const auto first = answers.begin() + begin;
    return static_cast<double>(std::count(first, first + count, '1')) / count;
  }
  int size() const { return static_cast<int>(answers.size()); }
};

// the exercise's, and others
const Given kTen{"0110111011"}, kOthers{"01001110110"};

// what the ranks' own shares would be: blocks as even as can be
Row blocks(const Given& given, int world) {
  Row shares;
  for (int rank = 0, begin = 0; rank < world; ++rank) {
    const int count = given.size() / world + (rank < given.size() % world ? 1 : 0);
    shares.push_back(given.right(begin, count));
    begin += count;
  }
  return shares;
}

// however they are cut: rounded up, the last block may be a small one
void require_shared_work(const Run& run, const Given& given, const std::string& where) {
  const int world = static_cast<int>(run.ranks.size()), most = (given.size() + world - 1) / world;
  for (const auto& rank : run.ranks) {
    const auto looks = static_cast<int>(rank.numbers("looked at").size());
    if (looks > most)
      throw NotYet(format("{}, rank {} looks at {} of {} answers: the work is not shared", where, rank.rank(),
                          looks, given.size()),
                   "the others wait for the one that has most to do");
  }
}

void judge_looks(const Run& run, const Given& given) {
  const double size = given.size();
  double all = 0;
  for (const auto& rank : run.ranks) all += static_cast<double>(rank.numbers("looked at").size());
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
  for (const auto& [answer, ranks] : takers(run, "looked at", given.size())) {
    if (ranks.size() != 1)
      throw NotYet(format("{}, answer {} is looked at {}", where, answer, times(ranks.size())),
                   "each answer is one rank's");
  }
  require_shared_work(run, given, where);
}

void judge_share(const RankRun& rank, const Given& given, int world) {
  const double is = rank.number("share"), wanted = given.right(0, given.size());
  if (near(is, wanted)) return;
  const auto what = format("with {} ranks, rank {} says that {} are right, and it is {}", world, rank.rank(),
                           shown(is), shown(wanted));
  const auto own = blocks(given, world);
  if (near(is, std::accumulate(own.begin(), own.end(), 0.0) / world))
    throw NotYet(what + ": that is a mean of the ranks' means",
                 "a rank with 3 answers counts there as much as one with 4");
  if (near(is, own[static_cast<size_t>(rank.rank())]))
    throw NotYet(what + ": that is the share of its own answers", "the other ranks' counts have not come in");
  if (near(is, wanted * given.size() / kTen.size()))
    throw NotYet(what + format(": as if there were {} answers, and there are {}", kTen.size(), given.size()),
                 "how many were looked at, over all ranks?");
  if (near(is, kTen.right(0, kTen.size())))
    throw NotYet(
        what + format(": that is right for {}, and these answers are {}", kTen.answers, given.answers),
        "count what look() says, whatever it is");
  throw NotYet(what);
}

LOCKSTEP_JUDGE("sampler.3", attempt) {
  for (const auto& [world, given] : {std::pair(3, kTen), std::pair(2, kOthers)}) {
    const auto run = attempt.run({.world = world, .args = {given.answers}});
    judge_looks(run, given);
    for (const auto& rank : run.ranks) judge_share(rank, given, world);
  }
}

}  // namespace
}  // namespace lockstep::workshop
