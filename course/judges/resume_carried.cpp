// Chapter 8, resume.4: the ranks that a process carries, and a sum with the same bits on any number of
// processes.
#include <algorithm>
#include <cstdint>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

using Floats = std::vector<float>;

constexpr size_t kSize = 32;  // as main() has it

struct Trial {
  int ranks, processes;
  std::string named() const {
    return format("{} ranks on {} process{}", ranks, processes, processes == 1 ? "" : "es");
  }
};

// --- the blocks

void judge_blocks(const Trial& trial, const Rows& blocks) {
  for (size_t process = 0; process < blocks.size(); ++process) {
    for (const double rank : blocks[process])
      expect(rank >= 0 && rank < trial.ranks,
             format("{}: process {} carries rank {}, and there is no such rank", trial.named(), process,
                    shown(rank)),
             {}, format("they are 0 to {}", trial.ranks - 1));
  }
  for (int rank = 0; rank < trial.ranks; ++rank) {
    std::vector<size_t> carriers;
    for (size_t process = 0; process < blocks.size(); ++process)
      carriers.insert(carriers.end(),
                      static_cast<size_t>(std::count(blocks[process].begin(), blocks[process].end(), rank)),
                      process);
    expect(!carriers.empty(), format("{}: rank {} is carried by no process", trial.named(), rank), {},
           "where the ranks do not divide evenly, who takes those that are left over?");
    expect(carriers.size() == 1,
           format("{}: rank {} is carried by process {} and by process {}", trial.named(), rank,
                  carriers.front(), carriers.back()),
           {}, "each rank is carried once: where does a process begin, when the ones before it have ended?");
  }
  const auto all = flat(blocks);
  expect(std::is_sorted(all.begin(), all.end()),
         format("{}: the processes carry {}, one after the other: they do not stand in a row", trial.named(),
                shown(all)),
         {},
         "a sum that goes from process to process comes to each of them once: all ranks below its own have "
         "to be "
         "in it by then");
  const auto by_size = [](const Row& a, const Row& b) { return a.size() < b.size(); };
  const auto least = std::min_element(blocks.begin(), blocks.end(), by_size),
             most = std::max_element(blocks.begin(), blocks.end(), by_size);
  expect(most->size() - least->size() <= 1,
         format("{}: process {} carries {} ranks, and process {} carries {}", trial.named(),
                most - blocks.begin(), most->size(), least - blocks.begin(), least->size()),
         {}, "all wait for the one with the most: nobody should carry two more than another");
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

int first_of(const Rows& blocks, size_t process) {
  size_t before = 0;
  for (size_t i = 0; i < process; ++i) before += blocks[i].size();
  return static_cast<int>(before);
}

Floats sum_of_sums(const Rows& blocks) {
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

struct CarriedSum {
  const Trial& trial;
  const Rows& blocks;
  size_t process;
  const Rows& sums;
  const Row& sum() const { return sums[process]; }
  int first() const { return first_of(blocks, process); }
  int end() const { return first_of(blocks, process + 1); }
};

void judge_sum(const CarriedSum& carried) {
  const int ranks = carried.trial.ranks;
  const auto wanted = fold(0, ranks), own = fold(carried.first(), carried.end());
  auto twice = wanted;
  add(twice, own);
  const auto& sum = carried.sum();
  const auto named = format("{}: process {}", carried.trial.named(), carried.process);
  expect(sum.size() == kSize,
         format("{} has {} numbers in the end, and each rank has {}", named, sum.size(), kSize));
  const auto differs = std::mismatch(sum.begin(), sum.end(), wanted.begin());
  if (differs.first == sum.end()) return;
  const auto what = format("{} has {:.9g} at place {}, and it is {:.9g}", named, *differs.first,
                           differs.first - sum.begin(), *differs.second);
  // nearly the same numbers are rounded in another way
  expect(!is_near(sum, wanted), what,
         {{has_bits(sum, sum_of_sums(carried.blocks)),
           "these are the bits of a sum for each process, and of the sum of these. On another number of "
           "processes "
           "they are others",
           "with 2 processes (0+1+2+3) + (4+5+6+7), and wanted is ((0+1+2+3) + 4) + 5 ...: to what does "
           "process 1 "
           "add its first rank?"},
          {has_bits(sum, fold_backward(ranks)),
           format("these are the bits of a sum that begins with rank {}", ranks - 1),
           "which process has the first ranks, and so begins?"},
          {has_bits(sum, fold_in_doubles(ranks)),
           "these are the bits of a sum in doubles, rounded once at its end",
           "closer to the truth, and yet not what 8 processes have: they round after each addition"}},
         "in which order are the ranks added? 0, then 1, then 2, each to the sum so far");
  expect(false, what,
         {{is_near(carried.sums.back(), wanted) && is_near(sum, fold(0, carried.end())),
           format("that is the sum up to rank {}, and the whole has not come back", carried.end() - 1),
           "who has the whole first, and which way does it go to the others?"},
          {is_near(sum, own), "it has the ranks that it carries itself, and no others",
           "what does it need of the process before it, and what does the next one need?"},
          {is_near(sum, twice), "the ranks that it carries itself are in it twice",
           "what comes back is whole: nothing is added to it"}},
         "each rank's numbers are added once");
}

Rows rows_of(const RankRun& run, const std::string& name, const Trial& trial) {
  auto rows = run.rows(name);
  expect(rows.size() == static_cast<size_t>(trial.processes),
         format("`{}` was shown {} times, and there are {} processes", name, rows.size(), trial.processes),
         {}, "main() shows it for each: leave it as it is");
  return rows;
}

// in this order each tells one kind of mistake from the next
LOCKSTEP_JUDGE("resume.4", attempt) {
  for (const Trial trial : {Trial{8, 2}, Trial{8, 3}, Trial{8, 5}, Trial{8, 8}, Trial{8, 1}, Trial{3, 5}}) {
    const auto named = trial.named();
    const auto run = run_threads_of(attempt, {std::to_string(trial.ranks), std::to_string(trial.processes)},
                                    named, named + " (which the messenger calls ranks)");
    const auto blocks = rows_of(run.ranks[0], "carries", trial), sums = rows_of(run.ranks[0], "sum", trial);
    judge_blocks(trial, blocks);
    for (size_t process = 0; process < sums.size(); ++process) judge_sum({trial, blocks, process, sums});
  }
}

}  // namespace
}  // namespace lockstep::workshop
