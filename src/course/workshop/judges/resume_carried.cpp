// Chapter 8, resume.4: the ranks that a process carries, and a sum with the same bits on any number of
// processes.
#include <algorithm>
#include <cstdint>

#include "course/workshop/judge.h"
#include "course/workshop/judges/messages.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;
using Floats = std::vector<float>;

constexpr size_t kSize = 32;  // as main() has it

struct Trial {
  int ranks, processes;
  std::string named() const {
    return format("{} ranks on {} process{}", ranks, processes, processes == 1 ? "" : "es");
  }
};

// in this order each tells one kind of mistake from the next
constexpr Trial kTrials[] = {{8, 2}, {8, 3}, {8, 5}, {8, 8}, {8, 1}, {3, 5}};

// --- the blocks

std::vector<size_t> carriers_of(double rank, const std::vector<Row>& blocks) {
  std::vector<size_t> found;
  for (size_t process = 0; process < blocks.size(); ++process)
    found.insert(found.end(),
                 static_cast<size_t>(std::count(blocks[process].begin(), blocks[process].end(), rank)),
                 process);
  return found;
}

std::string rows_text(const std::vector<Row>& blocks) {
  std::vector<std::string> words;
  for (const auto& block : blocks) words.push_back(block.empty() ? "none" : shown(block));
  return base::join(words, " | ");
}

void require_each_once(const Trial& trial, const std::vector<Row>& blocks) {
  for (int rank = 0; rank < trial.ranks; ++rank) {
    const auto carriers = carriers_of(rank, blocks);
    if (carriers.empty())
      throw NotYet(format("{}: rank {} is carried by no process", trial.named(), rank),
                   "where the ranks do not divide evenly, who takes those that are left over?");
    if (carriers.size() > 1)
      throw NotYet(
          format("{}: rank {} is carried by process {} and by process {}", trial.named(), rank, carriers[0],
                 carriers[1]),
          "each rank is carried once: where does a process begin, when the ones before it have ended?");
  }
}

void require_no_other(const Trial& trial, const std::vector<Row>& blocks) {
  for (size_t process = 0; process < blocks.size(); ++process) {
    for (const double rank : blocks[process]) {
      if (rank < 0 || rank >= trial.ranks)
        throw NotYet(format("{}: process {} carries rank {}, and there is no such rank", trial.named(),
                            process, shown(rank)),
                     format("they are 0 to {}", trial.ranks - 1));
    }
  }
}

void require_row(const Trial& trial, const std::vector<Row>& blocks) {
  Row all;
  for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
  if (std::is_sorted(all.begin(), all.end())) return;
  throw NotYet(
      format("{}: the processes carry {}: they do not stand in a row", trial.named(), rows_text(blocks)),
      "a sum that goes from process to process comes to each of them once: all ranks below its own have to "
      "be in it by then");
}

void require_even(const Trial& trial, const std::vector<Row>& blocks) {
  const auto by_size = [](const Row& a, const Row& b) { return a.size() < b.size(); };
  const auto least = std::min_element(blocks.begin(), blocks.end(), by_size);
  const auto most = std::max_element(blocks.begin(), blocks.end(), by_size);
  if (most->size() - least->size() <= 1) return;
  const auto carries = [&](auto block) {
    return format("process {} carries {}", block - blocks.begin(), block->size());
  };
  throw NotYet(format("{}: {} ranks, and {}", trial.named(), carries(most), carries(least)),
               "all wait for the one with the most: nobody should carry two more than another");
}

// --- the sums

Floats numbers_of(int rank) {
  Floats numbers;
  for (size_t i = 0; i < kSize; ++i)
    numbers.push_back(1 / static_cast<float>(1 + i + static_cast<size_t>(rank)));
  return numbers;
}

template <class Sum>
void add(std::vector<Sum>& sum, const Floats& numbers) {
  for (size_t i = 0; i < kSize; ++i) sum[i] += numbers[i];
}

// of the ranks `from` to `to` - 1, one after the other
template <class Sum = float>
std::vector<Sum> fold(int from, int to) {
  std::vector<Sum> sum(kSize);
  for (int rank = from; rank < to; ++rank) add(sum, numbers_of(rank));
  return sum;
}

Floats fold_backward(int ranks) {
  Floats sum(kSize);
  for (int rank = ranks - 1; rank >= 0; --rank) add(sum, numbers_of(rank));
  return sum;
}

Floats fold_in_doubles(int ranks) {
  const auto sum = fold<double>(0, ranks);
  return {sum.begin(), sum.end()};
}

int first_of(const std::vector<Row>& blocks, size_t process) {
  size_t before = 0;
  for (size_t i = 0; i < process; ++i) before += blocks[i].size();
  return static_cast<int>(before);
}

Floats sum_of_sums(const std::vector<Row>& blocks) {
  Floats sum(kSize);
  for (size_t process = 0; process < blocks.size(); ++process)
    add(sum, fold(first_of(blocks, process), first_of(blocks, process + 1)));
  return sum;
}

bool has_bits(const Row& row, const Floats& numbers) {
  return std::equal(row.begin(), row.end(), numbers.begin(), numbers.end());
}

bool is_near(const Row& row, const Floats& numbers) {
  return std::equal(row.begin(), row.end(), numbers.begin(), numbers.end(),
                    [](double is, double wanted) { return near(is, wanted, 1e-5); });
}

struct Outcome {
  const Trial& trial;
  const std::vector<Row>& blocks;
  size_t process;
  const std::vector<Row>& sums;
  const Row& sum() const { return sums[process]; }
  int first() const { return first_of(blocks, process); }
  int end() const { return first_of(blocks, process + 1); }
};

// the numbers are others
[[noreturn]] void explain_numbers(const Outcome& outcome, const std::string& what) {
  const int ranks = outcome.trial.ranks;
  const auto own = fold(outcome.first(), outcome.end());
  if (is_near(outcome.sums.back(), fold(0, ranks)) && is_near(outcome.sum(), fold(0, outcome.end())))
    throw NotYet(
        what + format(": that is the sum up to rank {}, and the whole has not come back", outcome.end() - 1),
        "who has the whole first, and which way does it go to the others?");
  if (is_near(outcome.sum(), own))
    throw NotYet(what + ": it has the ranks that it carries itself, and no others",
                 "what does it need of the process before it, and what does the next one need?");
  auto twice = fold(0, ranks);
  add(twice, own);
  if (is_near(outcome.sum(), twice))
    throw NotYet(what + ": the ranks that it carries itself are in it twice",
                 "what comes back is whole: nothing is added to it");
  throw NotYet(what, "each rank's numbers are added once");
}

// nearly the same numbers, rounded in another way
[[noreturn]] void explain_bits(const Outcome& outcome, const std::string& what) {
  const int ranks = outcome.trial.ranks;
  if (has_bits(outcome.sum(), sum_of_sums(outcome.blocks)))
    throw NotYet(
        what +
            ": these are the bits of a sum for each process, and of the sum of these. On another number "
            "of processes they are others",
        "with 2 processes (0+1+2+3) + (4+5+6+7), and wanted is ((0+1+2+3) + 4) + 5 ...: to what does process "
        "1 "
        "add its first rank?");
  if (has_bits(outcome.sum(), fold_backward(ranks)))
    throw NotYet(what + format(": these are the bits of a sum that begins with rank {}", ranks - 1),
                 "which process has the first ranks, and so begins?");
  if (has_bits(outcome.sum(), fold_in_doubles(ranks)))
    throw NotYet(what + ": these are the bits of a sum in doubles, rounded once at its end",
                 "closer to the truth, and yet not what 8 processes have: they round after each addition");
  throw NotYet(what, "in which order are the ranks added? 0, then 1, then 2, each to the sum so far");
}

void judge_sum(const Outcome& outcome) {
  const auto wanted = fold(0, outcome.trial.ranks);
  const auto named = format("{}: process {}", outcome.trial.named(), outcome.process);
  if (outcome.sum().size() != kSize)
    throw NotYet(
        format("{} has {} numbers in the end, and each rank has {}", named, outcome.sum().size(), kSize));
  const auto differs = std::mismatch(outcome.sum().begin(), outcome.sum().end(), wanted.begin());
  if (differs.first == outcome.sum().end()) return;
  const auto place = differs.first - outcome.sum().begin();
  const auto what =
      format("{} has {:.9g} at place {}, and it is {:.9g}", named, *differs.first, place, *differs.second);
  if (is_near(outcome.sum(), wanted)) explain_bits(outcome, what);
  explain_numbers(outcome, what);
}

std::vector<Row> rows_of(const RankRun& run, const std::string& name, const Trial& trial) {
  auto rows = run.rows(name);
  if (rows.size() == static_cast<size_t>(trial.processes)) return rows;
  throw NotYet(
      format("`{}` was shown {} times, and there are {} processes", name, rows.size(), trial.processes),
      "main() shows it for each: leave it as it is");
}

void judge_trial(Attempt& attempt, const Trial& trial) {
  const auto named = trial.named();
  const auto run = run_threads_of(attempt, {std::to_string(trial.ranks), std::to_string(trial.processes)},
                                  named, named + " (which the messenger calls ranks)");
  const auto blocks = rows_of(run.ranks.front(), "carries", trial);
  for (const auto require : {require_no_other, require_each_once, require_row, require_even})
    require(trial, blocks);
  const auto sums = rows_of(run.ranks.front(), "sum", trial);
  for (size_t process = 0; process < sums.size(); ++process) judge_sum({trial, blocks, process, sums});
}

LOCKSTEP_JUDGE("resume.4", attempt) {
  for (const auto& trial : kTrials) judge_trial(attempt, trial);
}

}  // namespace
}  // namespace lockstep::workshop
