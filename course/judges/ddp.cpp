// Chapter 6: DistributedDataParallel.
#include <cmath>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// --- ddp.1: a line through 12 points, the whole batch in each of 4 steps

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
      const double points = rank.number("points");
      expect(points == 12.0 / world,
             format("with {} ranks, rank {} takes {} points, and its share are {}", world, rank.rank(),
                    shown(points), 12 / world),
             {{points == 12, "all 12 points, as if it were alone", "does the sampler know of the session?"}});
    }
    require_one_model(run, "slope");
    const double is = run.ranks[0].number("slope");
    expect(agree(is, fitted_slope()),
           format("with {} ranks the slope is {}, and with one process it is {}", world, shown(is),
                  shown(fitted_slope())),
           {{agree(is, fitted_slope(world)), "all take the points of rank 0",
             "does the sampler know which rank this is?"}},
           "only the session, the sampler and the model's wrap are to be changed");
  }
}

// --- ddp.2: one sample a rank, (w x + b)^2 with w = (1, -1), b = 0.5, x = (1 + rank, 2)

Row own_gradient(const std::string& name, int rank) {
  const double x = 1.0 + rank, value = x - 2 + 0.5;
  return name == "weight" ? Row{2 * value * x, 2 * value * 2} : Row{2 * value};
}

Row divided(Row row, double by) {
  for (double& number : row) number /= by;
  return row;
}

void judge_gradient(const Run& run, const std::string& name) {
  const auto world = static_cast<double>(run.ranks.size());
  Row sum(own_gradient(name, 0).size());
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const auto own = own_gradient(name, static_cast<int>(rank));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  const auto first = run.ranks[0].numbers("gradient of " + name);
  for (const auto& rank : run.ranks) {
    const auto& is = rank.numbers("gradient of " + name);
    const auto own = own_gradient(name, rank.rank());
    expect(agree(is, divided(sum, world)),
           format("with {} ranks, the gradient of {} on rank {} is {}, and the mean over the ranks is {}",
                  world, name, rank.rank(), shown(is), shown(divided(sum, world))),
           {{agree(is, sum) && agree(first, divided(sum, world)),
             format("that of rank 0 is the mean, and that of rank {} the sum", rank.rank()),
             "each rank has gradients of its own: every one of them divides"},
            {agree(is, sum), "that is the sum", "what makes a mean of a sum?"},
            {agree(is, divided(sum, 2)), "as if there were 2 ranks", "who knows how many there are?"},
            {agree(is, own), "that of its own sample", "is this gradient exchanged at all?"},
            {agree(is, divided(own, world)), format("that of its own sample, divided by {}", world),
             "the sum was not there yet when it was divided: group()->allreduce(...) only begins one, and "
             "->wait() on what it returns ends it"}});
  }
}

LOCKSTEP_JUDGE("ddp.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks)
      expect(
          agree(rank.numbers("weight"), {1, -1}),
          format("rank {} has changed the weight itself, to {}", rank.rank(), shown(rank.numbers("weight"))),
          {}, "gradients are averaged, in parameter.grad(); the optimiser changes the weights later");
    judge_gradient(run, "weight");
    judge_gradient(run, "bias");
  }
}

// --- ddp.3: a weight that only one rank's loss meets

// common and rare
Row trained_weights(int world) {
  double common = 1, rare = 1;
  for (int step = 0; step < 4; ++step) {
    double to_common = 0, to_rare = 0;
    for (int rank = 0; rank < world; ++rank) {
      const bool is_rare = step % world == rank;
      const double x = 1.0 + rank, error = (common + (is_rare ? rare : 0)) * x - 1;
      to_common += 2 * error * x / world;
      if (is_rare) to_rare += 2 * error * x / world;
    }
    common -= 0.1 * to_common;
    rare -= 0.1 * to_rare;
  }
  return {common, rare};
}

// lockstep's own error of it, in this exercise's words; whatever else goes wrong is told as everywhere
Run run_branches(Attempt& attempt, int world) {
  auto run = attempt.run({.world = world, .may_fail = true});
  bool well = true;
  for (const auto& rank : run.ranks) {
    const auto& ending = rank.ending();
    well = well && ending.is_well();
    if (ending.error && ending.error->code == Code::no_gradient)
      throw NotYet(format("with {} ranks, DDP waits for the gradient of rare, which not every rank's loss "
                          "meets; rank {} says:\n{}",
                          world, rank.rank(), ending.printed),
                   "its error names what to do where that is on purpose");
  }
  return well ? run : attempt.run({.world = world});
}

LOCKSTEP_JUDGE("ddp.3", attempt) {
  for (const int world : {2, 3}) {
    const auto run = run_branches(attempt, world);
    for (const auto& rank : run.ranks)
      expect(rank.number("rare") != 1,
             format("with {} ranks, the weight rare is 1 on rank {} at the end: it has not learned", world,
                    rank.rank()),
             {}, "it shall be trained, too, by those steps and ranks that meet it");
    require_one_model(run, "rare");
    require_one_model(run, "common");
    const Row is = {run.ranks[0].number("common"), run.ranks[0].number("rare")};
    expect(
        agree(is, trained_weights(world)),
        format("with {} ranks, common and rare end at {}, and with gradients averaged over all ranks at {}",
               world, shown(is), shown(trained_weights(world))),
        {}, "a rank that does not meet a weight counts as a gradient of 0");
  }
}

// --- ddp.4: 2 steps of 3 samples a rank

constexpr int kLargeSteps = 2;

struct Small {
  int world, batches;
};

// the slope after both steps where each sample's gradient counts `share`, from sample `first` of a rank on
double slope_with(const Small& small, double share, int first = 0) {
  constexpr double kOffsets[] = {0, 1, 3, 2, 5};
  double slope = 1;
  for (int step = 0; step < kLargeSteps; ++step) {
    double gradient = 0;
    for (int rank = 0; rank < small.world; ++rank) {
      for (int i = first; i < small.batches; ++i) {
        const double x = rank + step + kOffsets[i];
        gradient += share * 2 * (slope * x - 2) * x / small.world;
      }
    }
    slope -= 0.01 * gradient;
  }
  return slope;
}

void judge_small(const RankRun& rank, double first, const Small& small) {
  const auto of = format("with {} ranks and {} small batches, ", small.world, small.batches);
  const double exchanges = rank.number("exchanges"), kept = rank.number("kept at once"),
               is = rank.number("slope");
  expect(exchanges == kLargeSteps,
         format("{}there were {} exchanges in {} steps, and {} are enough", of, shown(exchanges), kLargeSteps,
                kLargeSteps),
         {{exchanges == 0, "nothing was exchanged: each rank trains a model of its own",
           "the last backward of a step has to run without no_sync()"}},
         "in which of the small batches must the gradients be exchanged?");
  expect(kept <= 1,
         format("{}the outputs of {} were in memory at once, and there is room for 1", of, shown(kept)), {},
         "a small batch's backward comes before the next one's forward");
  expect(
      agree(is, first),
      format("{}the ranks' slopes differ: rank 0's ends at {}, and rank {}'s at {}", of, shown(first),
             rank.rank(), shown(is)),
      {},
      "what comes after a step's exchange stays on its rank: the last small batch exchanges the sum of all, "
      "and the optimiser steps once, after it");
}

LOCKSTEP_JUDGE("ddp.4", attempt) {
  for (const Small small : {Small{2, 3}, Small{3, 4}}) {
    const auto run = attempt.run({.world = small.world, .args = {std::to_string(small.batches)}});
    const double is = run.ranks[0].number("slope"), share = 1.0 / small.batches;
    for (const auto& rank : run.ranks) judge_small(rank, is, small);
    const auto last_alone = [&](double share) { return slope_with(small, share, small.batches - 1); };
    expect(
        agree(is, slope_with(small, share)),
        format("with {} ranks and {} small batches, the slope ends at {}, and it should be {}", small.world,
               small.batches, shown(is), shown(slope_with(small, share))),
        {{is == 1, "it has not moved", "who moves the weights, once the gradients are there?"},
         {agree(is, slope_with(small, 1)), "the losses are not divided", "so many losses make one mean"},
         {agree(is, slope_with(small, 1.0 / 3)), "the losses are divided as if it were three small batches",
          "batch.size() says"},
         {agree(is, slope_with(small, share / small.world)), "the losses are divided by the ranks, too",
          "DDP makes the mean over the ranks"},
         {agree(is, last_alone(1)) || agree(is, last_alone(share)), "that is of the last small batch alone",
          "gradients add up until zero_grad(): what becomes of the first ones?"},
         {true, "is there a step after each small batch?",
          "the optimiser steps once, when all gradients are in"}});
  }
}

// --- the workshop's own program: two ranks against one

constexpr size_t kProgramEpochs = 5;
constexpr double kTwinsLoss = 0.5604;  // programs/single_process.cpp, in its last epoch
constexpr double kLossTolerance = 0.005;
constexpr double kLeastFall = 0.05;  // from order to order of the batches it moves by some hundredths

// two runs that both learn nothing agree, too
void require_training(const Row& losses) {
  expect(losses.size() == kProgramEpochs,
         format("{} average losses were shown, and there are {} epochs", losses.size(), kProgramEpochs), {},
         "the program shows one at the end of each epoch: leave that as it is");
  expect(losses.back() < losses.front() - kLeastFall,
         format("nothing is learned: the average loss is {} in the first epoch and {} in the last",
                shown(losses.front()), shown(losses.back())),
         {}, "who moves the weights, once the gradients are there?");
  expect(near(losses.back(), kTwinsLoss, kLossTolerance),
         format("the average loss of the last epoch is {}, and programs/single_process.cpp has {}",
                shown(losses.back()), shown(kTwinsLoss)),
         {}, "only the sampler, the model and the mean are to be changed");
}

LOCKSTEP_JUDGE("distributed_data_parallel", attempt) {
  const auto run = attempt.run({.world = 2});
  const auto& first = run.ranks[0].numbers("first patients");
  expect(run.ranks[1].numbers("first patients") != first,
         format("rank 0 and rank 1 take the same patients: both begin with {}", shown(first)), {},
         "the sampler has to know whose share it gives");
  require_one_model(run, "head.bias");
  const auto alone = attempt.run({.world = 1});
  const auto wanted = flat(alone.ranks[0].rows("average"));
  require_training(wanted);
  const auto &is = run.ranks[0].numbers("head.bias"), &one = alone.ranks[0].numbers("head.bias");
  expect(agree(is, one),
         format("after 5 epochs head.bias is {} with 2 ranks and {} with one", shown(is), shown(one)), {},
         "64 patients a step over all ranks: is the batch divided, and the seed the same?");
  for (const auto& rank : run.ranks) {
    const auto losses = flat(rank.rows("average"));
    expect(
        agree(losses, wanted),
        format(
            "epoch by epoch the average loss on rank {} is {}, and with one rank it is {}: that is the loss "
            "of its own share",
            rank.rank(), shown(losses), shown(wanted)),
        {}, "DDP averages the gradients and nothing else: a loss for the log is averaged by you");
  }
}

}  // namespace
}  // namespace lockstep::workshop
