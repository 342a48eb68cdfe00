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
      rank.expect_number("points", 12.0 / world, "pass the session to the sampler",
                         {{rank.number("points") == 12, "all 12 points, as if it were the only rank"}});
    require_one_model(run, "slope");
    run.ranks[0].expect_number("slope", fitted_slope(),
                               "check whether all ranks take the points of rank 0: one process gets another "
                               "slope. Change only the session, the sampler and the model's wrap");
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
        "divide the sum of every gradient by the number of ranks after the sum is complete: "
        "group()->allreduce(...) only starts it, and ->wait() on its result ends it";
    for (const auto& rank : run.ranks) {
      rank.expect_numbers(
          "weight", {1, -1},
          "average the gradients in parameter.grad(); the optimizer changes the weights later");
      const double twice = rank.numbers("gradient of weight")[0] * world;
      rank.expect_numbers(
          "gradient of weight", weight, kThink,
          {{agree(twice, weight[0]), "it is divided twice"},
           {agree(run.ranks[0].numbers("gradient of weight"), weight), "only rank 0 has it"}});
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
        "count a gradient of 0 for a rank that does not use a weight, and still update the weight";
    for (const auto& rank : run.ranks) {
      rank.expect_number("rare", weights[1], kThink,
                         {{attempt.text().find(".ignore") != std::string::npos,
                           "DDP does not average the gradient of an ignored weight"}});
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
                         "in which small batch of a step must DDP exchange the gradients?",
                         {{rank.number("exchanges") == 0, "DDP exchanged no gradients",
                           "run the last backward of a step without no_sync()"}});
      expect(rank.number("kept at once") <= 1,
             format("the outputs of {} small batches were in memory at once, but there is room for 1",
                    shown(rank.number("kept at once"))),
             "run the backward of a small batch before the forward of the next one");
    }
    require_one_model(run, "slope");
    run.ranks[0].expect_number("slope", slope_of_small_batches(world, batches),
                               "divide by batch.size() to get one mean; gradients add up until zero_grad(); "
                               "step the optimizer once, after all small batches");
  }
}

// --- the course's own program: two ranks against one

constexpr size_t kProgramEpochs = 5;
constexpr double kTwinsLoss = 0.5604;  // programs/single_process.cpp, in its last epoch
constexpr double kLossTolerance = 0.005;

CHECK_OF("distributed_data_parallel", attempt) {
  const auto run = attempt.run({.world = 2});
  const auto& first = run.ranks[0].numbers("first patients");
  expect(run.ranks[1].numbers("first patients") != first,
         format("rank 0 and rank 1 use the same patients: both begin with {}", shown(first)),
         "pass the rank to the sampler, so that it returns this rank's share");
  require_one_model(run, "head.bias");
  const auto alone = attempt.run({.world = 1});
  const auto wanted = alone.ranks[0].column("average", kProgramEpochs);
  expect(near(wanted.back(), kTwinsLoss, kLossTolerance),
         format("the average loss of the last epoch is {}, but programs/single_process.cpp has {}",
                shown(wanted.back()), shown(kTwinsLoss)),
         "change only the sampler, the model and the mean",
         {{wanted.back() > wanted.front() - 0.05, "the loss does not change",
           "which call updates the weights?"}});
  run.ranks[0].expect_numbers(
      "head.bias", alone.ranks[0].numbers("head.bias"),
      "use 64 patients per step over all ranks: is the batch divided, and the seed the same?");
  for (const auto& rank : run.ranks) {
    const auto losses = rank.column("average", kProgramEpochs);
    expect(agree(losses, wanted),
           format("the average losses of the epochs on rank {} are {}, but with one rank {}", rank.rank(),
                  shown(losses), shown(wanted)),
           "average the losses as well: DDP averages only the gradients");
  }
}

}  // namespace
}  // namespace lockstep::workshop
