// Chapter 5: sharing the data.
#include <algorithm>
#include <map>
#include <numeric>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

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

// the shares one by one, then together: counted before they are compared in order
void judge_shares(const Run& run, int size) {
  const auto name = format("of {}", size);
  const int world = static_cast<int>(run.ranks.size());
  const auto where = format("with {} ranks and {} samples", world, size);
  const auto found = takers(run, name, size);
  expect(size < world ||
             std::any_of(found.begin(), found.end(), [](const auto& row) { return !row.second.empty(); }),
         where + ", no rank takes any sample", {}, "share_of() is to be filled: mine.push_back(...)");
  const auto first = run.ranks[0].numbers(name).size();
  for (const auto& rank : run.ranks)
    expect(rank.numbers(name).size() == first,
           format("{}, rank 0 takes {} and rank {} takes {}: the longer one's last step would wait for ever",
                  where, first, rank.rank(), rank.numbers(name).size()),
           {}, "every rank calls the all-reduce of every step: what does the last step need?");
  require_counts(found, world, where);
  for (const auto& rank : run.ranks) {
    Row wanted;
    for (int at = rank.rank(); std::ssize(wanted) < (size + world - 1) / world; at += world)
      wanted.push_back(at % size);
    expect(rank.numbers(name) == wanted,
           format("{}, rank {} takes {}, and DistributedSampler gives it {}: ranks take turns", where,
                  rank.rank(), shown(rank.numbers(name)), shown(wanted)));
  }
}

LOCKSTEP_JUDGE("sampler.1", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const int size : {12, 10, 2, 1}) judge_shares(run, size);
  }
}

// --- sampler.2: 12 samples, shuffled in each of 3 epochs

// what DistributedSampler and Python's draw from seed 7, from epoch -2 on
const Rows kKnownLists = {{11, 0, 9, 6, 10, 3, 4, 5, 8, 7, 1, 2}, {2, 9, 5, 0, 6, 3, 11, 8, 7, 1, 4, 10},
                          {3, 4, 0, 5, 7, 9, 11, 6, 8, 1, 10, 2}, {3, 10, 0, 6, 9, 4, 1, 7, 8, 2, 5, 11},
                          {10, 9, 6, 8, 0, 3, 7, 4, 1, 11, 2, 5}, {5, 2, 4, 7, 1, 9, 11, 0, 3, 8, 10, 6}};

// Ranks take turns along the epoch's list, so the list can be told from their shares. Two ranks that draw
// apart take some samples twice and leave out others: the first is told.
Row list_of(const Run& run, int epoch) {
  const auto name = format("epoch {}", epoch);
  const auto found = takers(run, name, 12);
  for (const size_t wrong : {2, 0}) {
    for (const auto& [sample, ranks] : found)
      expect(wrong == 2 ? ranks.size() < 2 : !ranks.empty(),
             format("with {} ranks, sample {} is taken {} in epoch {}", run.ranks.size(), sample,
                    wrong == 2 ? "twice" : "by nobody", epoch),
             {}, "the ranks share one list: all must draw it from the same seed and the same epoch's number");
  }
  Row list;
  for (size_t turn = 0; list.size() < found.size(); ++turn) {
    for (const auto& rank : run.ranks)
      if (turn < rank.numbers(name).size()) list.push_back(rank.numbers(name)[turn]);
  }
  return list;
}

void judge_epochs(const Run& run) {
  constexpr const char* kAgain =
      "a run that goes on in the middle needs this list again: the same seed and the same epoch make the "
      "same list";
  const Rows lists = {list_of(run, 0), list_of(run, 1), list_of(run, 2)};
  expect(!std::is_sorted(lists[0].begin(), lists[0].end()),
         format("the list of epoch 0 is not shuffled: {}", shown(lists[0])), {},
         "training wants .shuffle = true");
  Row drawn_for;
  for (const auto& list : lists) {
    const auto known = std::find(kKnownLists.begin(), kKnownLists.end(), list);
    expect(known != kKnownLists.end(),
           format("epoch {} has a list that seed 7 makes of no epoch near it", drawn_for.size()), {}, kAgain);
    drawn_for.push_back(static_cast<double>(known - kKnownLists.begin()) - 2);
  }
  for (size_t epoch = 0; epoch < lists.size(); ++epoch) {
    const auto same = std::find(lists.begin(), lists.end(), lists[epoch]) - lists.begin();
    expect(same == static_cast<std::ptrdiff_t>(epoch),
           format("epoch {} has the same order as epoch {}: {}", epoch, same, shown(lists[epoch])), {},
           "who tells the sampler that another epoch begins?");
  }
  for (size_t epoch = 0; epoch < lists.size(); ++epoch)
    expect(drawn_for[epoch] == static_cast<double>(epoch),
           format("epoch {} has the list of epoch {}, with seed 7", epoch, drawn_for[epoch]), {}, kAgain);
}

LOCKSTEP_JUDGE("sampler.2", attempt) {
  for (const int world : {2, 3}) judge_epochs(attempt.run({.world = world}));
}

// --- sampler.3: the answers of a run, of which 1 is a right one

double right_of(const std::string& answers) {
  return static_cast<double>(std::count(answers.begin(), answers.end(), '1')) /
         static_cast<double>(answers.size());
}

// the exercise's, and others
constexpr const char *kTen = "0110111011", *kOthers = "01001110110";

void judge_looks(const Run& run, size_t size) {
  const size_t world = run.ranks.size();
  size_t all = 0;
  for (const auto& rank : run.ranks) all += rank.numbers("looked at").size();
  expect(all == size, format("with {} ranks, they look at {} answers, and there are {}", world, all, size),
         {{all == size * world, format("each rank looks at all {}", size),
           "share the work: each answer is one rank's"},
          {all > size, format("{} counted twice", all - size == 1 ? "one is" : format("{} are", all - size)),
           "training can bear a sample twice, a count cannot: which sampler repeats nothing?"},
          {true, "the rest is counted by nobody", "which sampler leaves nothing out?"}});
  for (const auto& [answer, ranks] : takers(run, "looked at", static_cast<int>(size)))
    expect(ranks.size() == 1,
           format("with {} ranks, answer {} is looked at {}", world, answer, times(ranks.size())), {},
           "each answer is one rank's");
  // however they are cut: rounded up, the last block may be a small one
  for (const auto& rank : run.ranks)
    expect(rank.numbers("looked at").size() <= (size + world - 1) / world,
           format("with {} ranks, rank {} looks at {} of {} answers: the work is not shared", world,
                  rank.rank(), rank.numbers("looked at").size(), size),
           {}, "the others wait for the one that has most to do");
}

void judge_share(const RankRun& rank, const std::string& given, size_t world) {
  Row own;  // of blocks as even as can be
  for (size_t at = 0, begin = 0; at < world; ++at) {
    const size_t count = given.size() / world + (at < given.size() % world ? 1 : 0);
    own.push_back(right_of(given.substr(begin, count)));
    begin += count;
  }
  const double is = rank.number("share"), wanted = right_of(given);
  expect(near(is, wanted),
         format("with {} ranks, rank {} says that {} are right, and it is {}", world, rank.rank(), shown(is),
                shown(wanted)),
         {{near(is, std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(world)),
           "that is a mean of the ranks' means", "a rank with 3 answers counts there as much as one with 4"},
          {near(is, own[static_cast<size_t>(rank.rank())]), "that is the share of its own answers",
           "the other ranks' counts have not come in"},
          {near(is, wanted * static_cast<double>(given.size()) / 10),
           format("as if there were 10 answers, and there are {}", given.size()),
           "how many were looked at, over all ranks?"},
          {near(is, right_of(kTen)), format("that is right for {}, and these answers are {}", kTen, given),
           "count what look() says, whatever it is"}});
}

LOCKSTEP_JUDGE("sampler.3", attempt) {
  for (const auto& [world, given] : {std::pair(3, kTen), std::pair(2, kOthers)}) {
    const auto run = attempt.run({.world = world, .args = {given}});
    judge_looks(run, std::string(given).size());
    for (const auto& rank : run.ranks) judge_share(rank, given, run.ranks.size());
  }
}

}  // namespace
}  // namespace lockstep::workshop
