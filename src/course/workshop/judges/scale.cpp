// Chapter 9: scaling, a layer that is shared, and a grid of ranks.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "course/workshop/judges/answer.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

// --- scale.1: a timing, and what it is worth

struct Timing {
  int ranks;
  double alone, strong, weak;
  double batch, lr;  // the plan of one alone
};
// the first is the exercise's
constexpr Timing kTimings[] = {{4, 80, 25, 90, 32, 0.01}, {3, 60, 24, 75, 48, 0.2}};

std::string about(const Timing& timing) {
  return format("{} s alone, {} s shared by {} ranks, {} s where each had as much", timing.alone,
                timing.strong, timing.ranks, timing.weak);
}

struct Taken {
  const char* function;
  double is, wanted;
};

// a typical number in place of the wanted one, and what it is
struct Typical {
  double number;
  const char* what;
  const char* think;
};

void require(const Taken& taken, const Timing& timing, const std::vector<Typical>& typical) {
  if (near(taken.is, taken.wanted)) return;
  const auto what = format("{}() says {}, and it is {} ({})", taken.function, shown(taken.is),
                           shown(taken.wanted), about(timing));
  for (const auto& row : typical) {
    if (near(taken.is, row.number)) throw NotYet(what + ": " + row.what, row.think);
  }
  throw NotYet(what);
}

void judge_times(const RankRun& rank, const Timing& timing) {
  const double speed_up = timing.alone / timing.strong, weak = timing.alone / timing.weak;
  require({"speed_up", rank.number("speed_up"), speed_up}, timing,
          {{1 / speed_up, "the other way round",
            "four ranks that take a quarter of the time are 4 times as fast"},
           {timing.alone - timing.strong, "the seconds that were saved", "how many TIMES as fast is it?"}});
  require({"strong_efficiency", rank.number("strong_efficiency"), speed_up / timing.ranks}, timing,
          {{speed_up, "that is the speed-up", "a speed-up of 4 is splendid on 4 ranks, and poor on 100"}});
  require({"weak_efficiency", rank.number("weak_efficiency"), weak}, timing,
          {{weak / timing.ranks, "as if the work had been shared out",
            "each rank has as much to do as the one alone: perfect ranks take as long as it did"}});
}

void judge_batches_of_plan(const Row& is, const Timing& timing) {
  const auto& first = kTimings[0];
  if (is == Row{timing.batch, timing.batch * timing.ranks}) return;
  const auto what =
      format("weak_plan() says {} on {} ranks (samples a rank, and together)", shown(is), timing.ranks);
  if (is == Row{first.batch, first.batch * timing.ranks})
    throw NotYet(what + format(": as with a batch of {}, whatever it was alone: {} here", shown(first.batch),
                               shown(timing.batch)),
                 "the plan of one alone is an argument");
  throw NotYet(what + format(", and a rank's batch stays: {}", shown(timing.batch)),
               "then how many samples are behind one step?");
}

void judge_plan(const RankRun& rank, const Timing& timing) {
  judge_batches_of_plan(rank.numbers("batches"), timing);
  const double is = rank.number("lr"), ranks = timing.ranks;
  if (near(is, timing.lr * ranks)) return;
  const auto what =
      format("weak_plan() says {} for lr, and the linear rule {}", shown(is), shown(timing.lr * ranks));
  if (near(is, timing.lr))
    throw NotYet(
        what + ": the learning rate has stayed",
        format("a step is a mean over {} times the samples, and there are so many times fewer steps", ranks));
  if (near(is, timing.lr * std::sqrt(ranks)))
    throw NotYet(what + ": it grows with the root of the ranks",
                 "the rule that is asked for is the linear one");
  if (near(is, kTimings[0].lr * ranks))
    throw NotYet(what + format(": as with a rate of {}, whatever it was alone", shown(kTimings[0].lr)),
                 "the plan of one alone is an argument");
  throw NotYet(what);
}

LOCKSTEP_JUDGE("scale.1", attempt) {
  for (const auto& timing : kTimings) {
    const auto run =
        attempt.run({.world = 1,
                     .args = {std::to_string(timing.ranks), shown(timing.alone), shown(timing.strong),
                              shown(timing.weak), shown(timing.batch), shown(timing.lr)},
                     .alone = true});
    judge_times(run.ranks[0], timing);
    judge_plan(run.ranks[0], timing);
  }
}

// --- scale.2: the same numbers as the exercise makes, and the whole layer

struct Matrix {
  int rows, columns;
  Row values;
  double at(int i, int j) const { return values[size_t(i) * size_t(columns) + size_t(j)]; }
};

Matrix numbers(int rows, int columns, int step) {
  Matrix made{rows, columns, {}};
  for (int i = 0; i < rows * columns; ++i) made.values.push_back(i * step % 7 - 3);
  return made;
}

constexpr int kSamples = 2, kWidth = 6;

// a part of the outputs, or of a sum's terms
struct Range {
  int begin, end;
};
constexpr Range kAll{0, kWidth};

Range of_rank(int rank, int world) {
  const int width = kWidth / world;
  return {rank * width, (rank + 1) * width};
}

Row outputs(Range terms, double biases) {
  const auto inputs = numbers(kSamples, kWidth, 3), weight = numbers(kWidth, kWidth, 5),
             bias = numbers(1, kWidth, 4);
  Row out;
  for (int i = 0; i < kSamples; ++i) {
    for (int j = 0; j < kWidth; ++j) {
      double sum = biases * bias.at(0, j);
      for (int k = terms.begin; k < terms.end; ++k) sum += inputs.at(i, k) * weight.at(j, k);
      out.push_back(sum);
    }
  }
  return out;
}

Row input_gradient(Range terms) {
  const auto gradient = numbers(kSamples, kWidth, 2), weight = numbers(kWidth, kWidth, 5);
  Row out;
  for (int i = 0; i < kSamples; ++i) {
    for (int k = 0; k < kWidth; ++k) {
      double sum = 0;
      for (int j = terms.begin; j < terms.end; ++j) sum += gradient.at(i, j) * weight.at(j, k);
      out.push_back(sum);
    }
  }
  return out;
}

Row columns_of(const Row& whole, Range range) {
  const Matrix matrix{kSamples, kWidth, whole};
  Row part;
  for (int i = 0; i < kSamples; ++i) {
    for (int j = range.begin; j < range.end; ++j) part.push_back(matrix.at(i, j));
  }
  return part;
}

// the ranks' parts of the outputs, added up or one below the other
Row added(const Row& whole, int world) {
  Row sums = columns_of(whole, of_rank(0, world));
  for (int rank = 1; rank < world; ++rank) {
    const auto part = columns_of(whole, of_rank(rank, world));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
  }
  return sums;
}

Row stacked(const Row& whole, int world) {
  Row rows;
  for (int rank = 0; rank < world; ++rank) {
    const auto part = columns_of(whole, of_rank(rank, world));
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

Row multiplied(Row row, double factor) {
  for (double& value : row) value *= factor;
  return row;
}

bool same(const Row& a, const Row& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return near(x, y); });
}

std::string first_other(const Row& is, const Row& wanted) {
  if (is.size() != wanted.size()) return format("{} numbers, and {} are wanted", is.size(), wanted.size());
  size_t at = 0;
  while (at + 1 < wanted.size() && near(is[at], wanted[at])) ++at;
  return format("{} in row {}, column {}, and the unsplit layer {}", shown(is[at]), at / kWidth, at % kWidth,
                shown(wanted[at]));
}

struct TypicalRow {
  Row numbers;
  const char* what;
  const char* think;
};

// what a function of the exercise has left on a rank, under a name of show()
struct Left {
  const char* function;
  const char* name;
  const RankRun& rank;
  int world;
};

void require(const Left& left, const Row& wanted, const std::vector<TypicalRow>& typical) {
  const auto& is = left.rank.numbers(left.name);
  if (same(is, wanted)) return;
  const auto what = format("{}(), {} ranks: rank {} has {}", left.function, left.world, left.rank.rank(),
                           first_other(is, wanted));
  for (const auto& row : typical) {
    if (same(is, row.numbers)) throw NotYet(what + ": " + row.what, row.think);
  }
  throw NotYet(what);
}

void judge_column(const RankRun& rank, int world) {
  const auto whole = outputs(kAll, 1);
  require(
      {"column_forward", "column", rank, world}, whole,
      {{columns_of(whole, of_rank(rank.rank(), world)), "the outputs of its own part alone",
        "the other ranks have the other outputs"},
       {added(whole, world), "the parts added up, where they are to be joined",
        "rank 0's outputs and rank 1's are different ones"},
       {stacked(whole, world), "the parts one below the other", "a row is a sample, with all its outputs"}});
}

void judge_input_gradient(const RankRun& rank, int world) {
  const auto whole = input_gradient(kAll);
  require({"column_backward", "gradient", rank, world}, whole,
          {{input_gradient(of_rank(rank.rank(), world)), "the gradient of its own outputs alone",
            "an input feeds the outputs of all ranks"},
           {multiplied(whole, 1.0 / world), "a mean over the ranks",
            "DDP takes a mean, over copies of the model; here the ranks are one model"}});
}

void judge_row(const RankRun& rank, int world) {
  require({"row_forward", "row", rank, world}, outputs(kAll, 1),
          {{outputs(kAll, world), "the bias once for each rank", "add it when the sum is made"},
           {outputs(of_rank(rank.rank(), world), 1), "of its own inputs alone",
            "each rank has a part of every sum"},
           {outputs(kAll, 0), "the bias is missing", "add it when the sum is made"}});
}

// what travels is outputs, or gradients of inputs: never more numbers than the whole batch has of them
void judge_travels(const RankRun& rank, int world) {
  constexpr const char* kFunctions[] = {"column_forward", "column_backward", "row_forward"};
  const auto& given = rank.numbers("given");
  for (size_t i = 0; i < std::min(std::size(kFunctions), given.size()); ++i) {
    if (given[i] <= kSamples * kWidth) continue;
    throw NotYet(
        format(
            "{}(), {} ranks: rank {} gives the others {} numbers, and {} are enough: weights have travelled",
            kFunctions[i], world, rank.rank(), shown(given[i]), kSamples * kWidth),
        "the whole weight is too large for one rank: let outputs travel, or gradients");
  }
}

LOCKSTEP_JUDGE("scale.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks) judge_column(rank, world);
    for (const auto& rank : run.ranks) judge_input_gradient(rank, world);
    for (const auto& rank : run.ranks) judge_row(rank, world);
    for (const auto& rank : run.ranks) judge_travels(rank, world);
  }
}

// --- scale.4: a grid

constexpr int64_t kRanks = 8, kNode = 4, kStepSamples = 256;
constexpr double kRoom = 10;  // MB a rank

void judge_optimiser(const OptimSettings& optim) {
  if (optim.lr != 0.01)
    throw NotYet(format("optim.lr is {}", shown(optim.lr)),
                 "with as many samples a step as before the learning rate stays: 0.01");
  if (optim.name != "sgd" || optim.momentum != 0.9)
    throw NotYet("the optimiser is another than sgd with momentum 0.9",
                 "it is given, and so is its state: only the grid and the batch are free");
}

void judge_grid(const Settings& settings) {
  const auto& grid = settings.parallel;
  if (settings.model.hidden != std::vector<int64_t>{1018, 510})
    throw NotYet("the model has other widths than 1018 and 510", "they are given: only the grid is free");
  if (grid.pipeline != 1)
    throw NotYet(format("parallel.pipeline is {}", grid.pipeline),
                 "here the ranks share each layer: data and tensor");
  if (grid.tensor > kNode)
    throw NotYet(
        format("{} ranks share each layer, and a node has {}: every layer's sums would cross the network",
               grid.tensor, kNode),
        "at most how many ranks may share a layer?");
  if (grid.data != 0 && grid.data * grid.tensor != kRanks)
    throw NotYet(format("{} copies of {} ranks each are {} ranks, and there are {}", grid.data, grid.tensor,
                        grid.data * grid.tensor, kRanks),
                 "data x tensor is the number of ranks");
}

// of the line that is JSON: libraries may have said something, too
double megabytes_of(const std::string& dry_run) {
  std::istringstream lines(dry_run);
  for (std::string line; std::getline(lines, line);) {
    const auto json = base::parse_json(line);
    if (json.is_object() && json.contains("rank_mb") && json["rank_mb"].is_number()) return json["rank_mb"];
  }
  throw NotYet("the dry run does not say how much memory a rank needs:\n" + dry_run);
}

void judge_dry_run(const RankRun& first) {
  const auto& ending = first.ending();
  if (!ending.is_well()) {
    const auto said = ending.error ? describe(Error(*ending.error)) : ending.printed;
    throw NotYet("lockstep does not take this grid:\n" + said);
  }
  const double megabytes = megabytes_of(ending.printed);
  if (megabytes > kRoom)
    throw NotYet(format("a rank needs {} MB, and has room for {}", shown(megabytes), shown(kRoom)),
                 "where ranks share the layers, each keeps a part of them");
}

LOCKSTEP_JUDGE("scale.4", attempt) {
  const auto settings = settings_of(attempt);
  judge_grid(settings);
  judge_optimiser(settings.optim);
  const auto run =
      attempt.lockstep({"train", attempt.path(), "--dry-run", "--json"}, {.world = kRanks, .may_fail = true});
  judge_dry_run(run.ranks[0]);
  const int64_t copies = kRanks / settings.parallel.tensor,
                each = settings.data.batch_size * settings.train.accumulate, together = copies * each;
  if (together != kStepSamples)
    throw NotYet(format("{} copies with {} samples each take {} samples a step, and {} are wanted", copies,
                        each, together, kStepSamples),
                 "the ranks of one copy take the same samples; each copy takes others");
}

}  // namespace
}  // namespace lockstep::workshop
