// Chapter 6: DistributedDataParallel.
#include <cmath>

#include "course/workshop/attempt.h"

namespace lockstep::workshop {
namespace {

// a line through 12 points, the whole batch in each of 4 steps
double fitted_slope() {
  double slope = 0;
  for (int step = 0; step < 4; ++step) {
    double gradient = 0;
    for (int i = 0; i < 12; ++i) {
      const double x = i / 10.0, y = 3 * x + std::sin(5 * x);
      gradient += 2 * x * (slope * x - y) / 12;
    }
    slope -= 0.5 * gradient;
  }
  return slope;
}

CHECK_OF("ddp.1", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    for (const auto& rank : run.ranks)
      rank.expect_number("points", 12.0 / world, "does the sampler know of the session?",
                         {{rank.number("points") == 12, "all 12 points, as if it were alone"}});
    require_one_model(run, "slope");
    run.ranks[0].expect_number(
        "slope", fitted_slope(),
        "one process has another slope: do all take the points of rank 0? Only the session, the "
        "sampler and the model's wrap are to be changed");
  }
}

// one sample a rank, (w x + b)^2 with w = (1, -1), b = 0.5, x = (1 + rank, 2)
CHECK_OF("ddp.2", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    Row weight = {0, 0}, bias = {0};
    for (int rank = 0; rank < world; ++rank) {
      const double x = 1.0 + rank, value = x - 2 + 0.5;
      weight[0] += 2 * value * x / world;
      weight[1] += 2 * value * 2 / world;
      bias[0] += 2 * value / world;
    }
    constexpr const char* kThink =
        "each rank divides the sum of every gradient by the number of ranks, once the sum is there: "
        "group()->allreduce(...) only begins one, and ->wait() on what it returns ends it";
    for (const auto& rank : run.ranks) {
      rank.expect_numbers(
          "weight", {1, -1},
          "gradients are averaged, in parameter.grad(); the optimiser changes the weights later");
      rank.expect_numbers("gradient of weight", weight, kThink);
      rank.expect_numbers("gradient of bias", bias, kThink);
    }
  }
}

// a weight that only one rank's loss meets: common and rare after 4 steps
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

CHECK_OF("ddp.3", attempt) {
  for (const int world : {2, 3}) {
    const auto run = attempt.run({.world = world});
    const auto weights = trained_weights(world);
    constexpr const char* kThink =
        "a rank that does not meet a weight counts as a gradient of 0, and the weight learns";
    for (const auto& rank : run.ranks) {
      rank.expect_number("rare", weights[1], kThink);
      rank.expect_number("common", weights[0], kThink);
    }
  }
}

// --- ddp.4: 2 steps of some small batches of one sample

constexpr int kLargeSteps = 2;

double slope_of_small_batches(int world, int batches) {
  constexpr double kOffsets[] = {0, 1, 3, 2, 5};
  double slope = 1;
  for (int step = 0; step < kLargeSteps; ++step) {
    double gradient = 0;
    for (int rank = 0; rank < world; ++rank) {
      for (int i = 0; i < batches; ++i) {
        const double x = rank + step + kOffsets[i];
        gradient += 2 * (slope * x - 2) * x / batches / world;
      }
    }
    slope -= 0.01 * gradient;
  }
  return slope;
}

CHECK_OF("ddp.4", attempt) {
  for (const auto& [world, batches] : {std::pair(2, 3), std::pair(3, 4)}) {
    const auto run = attempt.run({.world = world, .args = {std::to_string(batches)}});
    for (const auto& rank : run.ranks) {
      rank.expect_number("exchanges", kLargeSteps,
                         "in which small batch of a step must the gradients be exchanged?",
                         {{rank.number("exchanges") == 0, "nothing was exchanged",
                           "the last backward of a step has to run without no_sync()"}});
      expect(rank.number("kept at once") <= 1,
             format("the outputs of {} small batches were in memory at once, and there is room for 1",
                    shown(rank.number("kept at once"))),
             "a small batch's backward comes before the next one's forward");
    }
    require_one_model(run, "slope");
    run.ranks[0].expect_number(
        "slope", slope_of_small_batches(world, batches),
        "the losses of batch.size() small batches make one mean; gradients add up until "
        "zero_grad(); the optimiser steps once, when all are in");
  }
}

// --- the workshop's own program: two ranks against one

constexpr size_t kProgramEpochs = 5;
constexpr double kTwinsLoss = 0.5604;  // programs/single_process.cpp, in its last epoch
constexpr double kLossTolerance = 0.005;

CHECK_OF("distributed_data_parallel", attempt) {
  const auto run = attempt.run({.world = 2});
  const auto& first = run.ranks[0].numbers("first patients");
  expect(run.ranks[1].numbers("first patients") != first,
         format("rank 0 and rank 1 take the same patients: both begin with {}", shown(first)),
         "the sampler has to know whose share it gives");
  require_one_model(run, "head.bias");
  const auto alone = attempt.run({.world = 1});
  const auto wanted = alone.ranks[0].column("average", kProgramEpochs);
  expect(near(wanted.back(), kTwinsLoss, kLossTolerance),
         format("the average loss of the last epoch is {}, and programs/single_process.cpp has {}",
                shown(wanted.back()), shown(kTwinsLoss)),
         "only the sampler, the model and the mean are to be changed",
         {{wanted.back() > wanted.front() - 0.05, "nothing is learned", "who moves the weights?"}});
  run.ranks[0].expect_numbers(
      "head.bias", alone.ranks[0].numbers("head.bias"),
      "64 patients a step over all ranks: is the batch divided, and the seed the same?");
  for (const auto& rank : run.ranks) {
    const auto losses = rank.column("average", kProgramEpochs);
    expect(agree(losses, wanted),
           format("epoch by epoch the average loss on rank {} is {}, and with one rank it is {}", rank.rank(),
                  shown(losses), shown(wanted)),
           "is that the loss of its own share? DDP averages the gradients and nothing else");
  }
}

}  // namespace
}  // namespace lockstep::workshop
