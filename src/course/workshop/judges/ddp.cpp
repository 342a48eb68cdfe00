// Chapter 6: DistributedDataParallel.
#include <cmath>
#include <numeric>

#include "course/workshop/judge.h"
#include "course/workshop/judges/one_model.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

Row sum_of(const std::vector<Row>& rows) {
  Row sum(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  }
  return sum;
}

Row mean_of(const std::vector<Row>& rows) {
  auto mean = sum_of(rows);
  for (double& number : mean) number /= static_cast<double>(rows.size());
  return mean;
}

// ---- ddp.1: a line through 12 points, the whole batch in each of 4 steps

// of every `apart`th point
double fitted_slope(int apart = 1) {
  double slope = 0;
  for (int step = 0; step < 4; ++step) {
    double gradient = 0;
    for (int i = 0; i < 12; i += apart) {
      const double x = i / 10.0, y = 3 * x + std::sin(5 * x);
      gradient += 2 * x * (slope * x - y) * apart / 12;
    }
    slope -= 0.5 * gradient;
  }
  return slope;
}

LOCKSTEP_JUDGE("ddp.1", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks) {
      if (rank.number("points") == 12.0)
        throw NotYet(
            format("with {} ranks, rank {} takes all 12 points, as if it were alone", world, rank.rank()),
            "does the sampler know of the session?");
      if (rank.number("points") != 12.0 / world)
        throw NotYet(format("with {} ranks, rank {} takes {} points, and its share are {}", world,
                            rank.rank(), shown(rank.number("points")), 12 / world));
    }
    require_one_model(run, "slope");
    const double is = run.ranks[0].number("slope"), wanted = fitted_slope();
    if (agree(is, wanted)) continue;
    const auto what = format("with {} ranks the slope is {}, and with one process it is {}", world, shown(is),
                             shown(wanted));
    if (agree(is, fitted_slope(world)))
      throw NotYet(what + ": all take the points of rank 0", "does the sampler know which rank this is?");
    throw NotYet(what, "only the session, the sampler and the model's wrap are to be changed");
  }
}

// ---- ddp.2: one sample a rank, (w x + b)^2 with w = (1, -1), b = 0.5, x = (1 + rank, 2)

struct Gradients {
  Row weight, bias;
};

Gradients own_gradients(int rank) {
  const double x = 1.0 + rank, value = x - 2 + 0.5;
  return {{2 * value * x, 2 * value * 2}, {2 * value}};
}

Row divided(Row row, size_t by) {
  for (double& number : row) number /= static_cast<double>(by);
  return row;
}

void judge_gradient(const RankRun& rank, const std::string& name, const std::vector<Row>& own) {
  const auto& is = rank.numbers("gradient of " + name);
  const auto wanted = mean_of(own);
  if (agree(is, wanted)) return;
  const auto what =
      format("with {} ranks, the gradient of {} on rank {} is {}, and the mean over the ranks is {}",
             own.size(), name, rank.rank(), shown(is), shown(wanted));
  if (agree(is, sum_of(own))) throw NotYet(what + ": that is the sum", "what makes a mean of a sum?");
  if (agree(is, divided(sum_of(own), 2)))
    throw NotYet(what + ": as if there were 2 ranks", "who knows how many there are?");
  if (agree(is, own[static_cast<size_t>(rank.rank())]))
    throw NotYet(what + ": that of its own sample", "is this gradient exchanged at all?");
  if (agree(is, divided(own[static_cast<size_t>(rank.rank())], own.size())))
    throw NotYet(
        what + format(": that of its own sample, divided by {}", own.size()),
        "the sum was not there yet when it was divided: group()->allreduce(...) only begins one, and "
        "->wait() on what it returns ends it");
  throw NotYet(what);
}

// where rank 0 has the means and another the sums, only one of them divides
void require_all_divide(const Run& run, const std::vector<Row>& own) {
  if (!agree(run.ranks[0].numbers("gradient of weight"), mean_of(own))) return;
  for (const auto& rank : run.ranks) {
    if (agree(rank.numbers("gradient of weight"), sum_of(own)))
      throw NotYet(
          format("with {} ranks, the gradient of weight on rank 0 is the mean, and that of rank {} the sum",
                 own.size(), rank.rank()),
          "each rank has gradients of its own: every one of them divides");
  }
}

LOCKSTEP_JUDGE("ddp.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    std::vector<Row> weights, biases;
    for (int rank = 0; rank < world; ++rank) {
      weights.push_back(own_gradients(rank).weight);
      biases.push_back(own_gradients(rank).bias);
    }
    require_all_divide(run, weights);
    for (const auto& rank : run.ranks) {
      if (!agree(rank.numbers("weight"), {1, -1}))
        throw NotYet(format("rank {} has changed the weight itself, to {}", rank.rank(),
                            shown(rank.numbers("weight"))),
                     "gradients are averaged, in parameter.grad(); the optimiser changes the weights later");
      judge_gradient(rank, "weight", weights);
      judge_gradient(rank, "bias", biases);
    }
  }
}

// ---- ddp.3: a weight that only one rank's loss meets

struct Weights {
  double common = 1, rare = 1;
};

Weights trained_weights(int world) {
  Weights weights;
  for (int step = 0; step < 4; ++step) {
    double common = 0, rare = 0;
    for (int rank = 0; rank < world; ++rank) {
      const bool is_rare = step % world == rank;
      const double x = 1.0 + rank, error = (weights.common + (is_rare ? weights.rare : 0)) * x - 1;
      common += 2 * error * x / world;
      if (is_rare) rare += 2 * error * x / world;
    }
    weights.common -= 0.1 * common;
    weights.rare -= 0.1 * rare;
  }
  return weights;
}

// lockstep's own error of it, in this exercise's words; whatever else goes wrong is told as everywhere
Run run_branches(Attempt& attempt, int world) {
  auto run = attempt.run({.world = world, .may_fail = true});
  bool well = true;
  for (const auto& rank : run.ranks) {
    const auto& ending = rank.ending();
    well = well && ending.is_well();
    if (!ending.error || ending.error->code != Code::no_gradient) continue;
    throw NotYet(
        format(
            "with {} ranks, DDP waits for the gradient of rare, which not every rank's loss meets; rank {} "
            "says:\n{}",
            world, rank.rank(), ending.printed),
        "its error names what to do where that is on purpose");
  }
  return well ? run : attempt.run({.world = world});
}

LOCKSTEP_JUDGE("ddp.3", attempt) {
  for (const int world : {2, 3}) {
    const auto run = run_branches(attempt, world);
    const auto wanted = trained_weights(world);
    for (const auto& rank : run.ranks) {
      if (rank.number("rare") == 1.0)
        throw NotYet(format("with {} ranks, the weight rare is 1 on rank {} at the end: it has not learned",
                            world, rank.rank()),
                     "it shall be trained, too, by those steps and ranks that meet it");
    }
    require_one_model(run, "rare");
    require_one_model(run, "common");
    const auto& first = run.ranks.front();
    if (!agree(first.number("common"), wanted.common) || !agree(first.number("rare"), wanted.rare))
      throw NotYet(
          format(
              "with {} ranks, common and rare end at {} and {}, and with gradients averaged over all ranks "
              "at {} and {}",
              world, shown(first.number("common")), shown(first.number("rare")), shown(wanted.common),
              shown(wanted.rare)),
          "a rank that does not meet a weight counts as a gradient of 0");
  }
}

// ---- ddp.4: 2 steps of 3 samples a rank

constexpr int kLargeSteps = 2;

struct Small {
  int world, batches;
  std::string of() const { return format("with {} ranks and {} small batches", world, batches); }
};

double sample_gradient(int rank, int step, int i, double slope) {
  constexpr double kOffsets[] = {0, 1, 3, 2, 5};
  const double x = rank + step + kOffsets[i];
  return 2 * (slope * x - 2) * x;
}

// the slope after both steps where each sample's gradient counts `share`, from sample `first` of a rank on
double slope_with(const Small& small, double share, int first = 0) {
  double slope = 1;
  for (int step = 0; step < kLargeSteps; ++step) {
    double gradient = 0;
    for (int rank = 0; rank < small.world; ++rank) {
      for (int i = first; i < small.batches; ++i)
        gradient += share * sample_gradient(rank, step, i, slope) / small.world;
    }
    slope -= 0.01 * gradient;
  }
  return slope;
}

void judge_exchanges(const Run& run, const Small& small) {
  for (const auto& rank : run.ranks) {
    const auto where = format("{}, in {} steps", small.of(), kLargeSteps);
    const double exchanges = rank.number("exchanges");
    if (exchanges == 0)
      throw NotYet(where + " nothing was exchanged: each rank trains a model of its own",
                   "the last backward of a step has to run without no_sync()");
    if (exchanges != kLargeSteps)
      throw NotYet(
          format("{} there were {} exchanges, and {} are enough", where, shown(exchanges), kLargeSteps),
          "in which of the small batches must the gradients be exchanged?");
  }
}

void judge_kept(const Run& run, const Small& small) {
  for (const auto& rank : run.ranks) {
    const double kept = rank.number("kept at once");
    if (kept > 1)
      throw NotYet(format("{}, the outputs of {} were in memory at once, and there is room for 1", small.of(),
                          shown(kept)),
                   "a small batch's backward comes before the next one's forward");
  }
}

// the same on every rank
void judge_slope(double is, const Small& small) {
  const double share = 1.0 / small.batches, wanted = slope_with(small, share);
  if (agree(is, wanted)) return;
  const auto what =
      format("{}, the slope ends at {}, and it should be {}", small.of(), shown(is), shown(wanted));
  if (is == 1)
    throw NotYet(what + ": it has not moved", "who moves the weights, once the gradients are there?");
  if (agree(is, slope_with(small, 1)))
    throw NotYet(what + ": the losses are not divided", "so many losses make one mean");
  if (agree(is, slope_with(small, 1.0 / 3)))
    throw NotYet(what + ": the losses are divided as if it were three small batches", "batch.size() says");
  if (agree(is, slope_with(small, share / small.world)))
    throw NotYet(what + ": the losses are divided by the ranks, too", "DDP makes the mean over the ranks");
  for (const double of_one : {1.0, share}) {
    if (agree(is, slope_with(small, of_one, small.batches - 1)))
      throw NotYet(what + ": that is of the last small batch alone",
                   "gradients add up until zero_grad(): what becomes of the first ones?");
  }
  throw NotYet(what + ": is there a step after each small batch?",
               "the optimiser steps once, when all gradients are in");
}

LOCKSTEP_JUDGE("ddp.4", attempt) {
  for (const Small small : {Small{2, 3}, Small{3, 4}}) {
    const auto run = attempt.run({.world = small.world, .args = {std::to_string(small.batches)}});
    judge_exchanges(run, small);
    judge_kept(run, small);
    const double first = run.ranks[0].number("slope");
    for (const auto& rank : run.ranks) {
      if (!agree(rank.number("slope"), first))
        throw NotYet(
            format("{}, the ranks' slopes differ: rank 0's ends at {}, and rank {}'s at {}", small.of(),
                   shown(first), rank.rank(), shown(rank.number("slope"))),
            "what comes after a step's exchange stays on its rank: the last small batch exchanges the sum of "
            "all, and the optimiser steps once, after it");
    }
    judge_slope(first, small);
  }
}

// ---- the workshop's own program: two ranks against one

constexpr size_t kProgramEpochs = 5;
constexpr double kTwinsLoss = 0.5604;  // programs/single_process.cpp, in its last epoch
constexpr double kLossTolerance = 0.005;
constexpr double kLeastFall = 0.05;  // from order to order of the batches it moves by some hundredths

// two runs that both learn nothing agree, too
void require_training(const RankRun& alone) {
  Row losses;
  for (const auto& row : alone.rows("average")) losses.insert(losses.end(), row.begin(), row.end());
  if (losses.size() != kProgramEpochs)
    throw NotYet(
        format("{} average losses were shown, and there are {} epochs", losses.size(), kProgramEpochs),
        "the program shows one at the end of each epoch: leave that as it is");
  if (!(losses.back() < losses.front() - kLeastFall))
    throw NotYet(format("nothing is learned: the average loss is {} in the first epoch and {} in the last",
                        shown(losses.front()), shown(losses.back())),
                 "who moves the weights, once the gradients are there?");
  if (!workshop::near(losses.back(), kTwinsLoss, kLossTolerance))
    throw NotYet(format("the average loss of the last epoch is {}, and programs/single_process.cpp has {}",
                        shown(losses.back()), shown(kTwinsLoss)),
                 "only the sampler, the model and the mean are to be changed");
}

void require_shares(const Run& run) {
  const auto& first = run.ranks[0].numbers("first patients");
  if (run.ranks[1].numbers("first patients") == first)
    throw NotYet(format("rank 0 and rank 1 take the same patients: both begin with {}", shown(first)),
                 "the sampler has to know whose share it gives");
}

void judge_averages(const RankRun& rank, const RankRun& alone) {
  const auto is = rank.rows("average"), wanted = alone.rows("average");
  if (is.size() != wanted.size())
    throw NotYet(
        format("rank {} has {} epochs, and a run of one rank {}", rank.rank(), is.size(), wanted.size()));
  for (size_t epoch = 0; epoch < is.size(); ++epoch) {
    if (agree(is[epoch], wanted[epoch])) continue;
    throw NotYet(
        format(
            "in epoch {} the average loss on rank {} is {}, and with one rank it is {}: that is the loss of "
            "its own share",
            epoch, rank.rank(), shown(is[epoch]), shown(wanted[epoch])),
        "DDP averages the gradients and nothing else: a loss for the log is averaged by you");
  }
}

LOCKSTEP_JUDGE("distributed_data_parallel", attempt) {
  const auto run = attempt.run({.world = 2});
  require_shares(run);
  require_one_model(run, "head.bias");
  const auto alone = attempt.run({.world = 1});
  require_training(alone.ranks[0]);
  const auto& is = run.ranks[0].numbers("head.bias");
  const auto& wanted = alone.ranks[0].numbers("head.bias");
  if (!agree(is, wanted))
    throw NotYet(
        format("after 5 epochs head.bias is {} with 2 ranks and {} with one", shown(is), shown(wanted)),
        "64 patients a step over all ranks: is the batch divided, and the seed the same?");
  for (const auto& rank : run.ranks) judge_averages(rank, alone.ranks[0]);
}

}  // namespace
}  // namespace lockstep::workshop
