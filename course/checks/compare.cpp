// Chapter 10: DP against DDP.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/checks/scripts.h"
#include "course/workshop/attempt.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/json.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- compare.1: the steps of one process on two ranks

constexpr int kBatch = 64;
constexpr const char* kOneProcess = R"(
run: {name: one, seed: 7}
task: {name: mnist}
model: {name: mlp, hidden: [64]}
data: {root: data/mnist, workers: 0, batch_size: 64}
optim: {name: sgd, momentum: 0.9, lr: 0.01}
train: {epochs: 1, max_steps: 6, log_every: 1, eval_every: 0}
)";

Row losses_of_training(Attempt& attempt, const std::string& config, const std::string& name, int world) {
  attempt.lockstep({"train", config, "--set", "run.name=" + name, "--set", "run.dir=runs", "--set",
                    "train.max_steps=6", "--set", "train.log_every=1"},
                   {.world = world, .alone = world == 1});
  Row losses;
  std::istringstream lines(base::read_text(attempt.folder() + "/runs/" + name + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = base::parse_json(line);
    if (row.is_object() && row.value("event", "") == "step") losses.push_back(row.value("loss", 0.0));
  }
  return losses;
}

CHECK_OF("compare.1", attempt) {
  const auto settings = settings_of(attempt);
  const int batch = settings["data"]["batch_size"].as<int>(),
            often = settings["train"]["accumulate"].as<int>();
  expect(2 * batch * often == kBatch,
         format("two ranks take {} samples per step, but the one process took {}", 2 * batch * often, kBatch),
         "note that data.batch_size is per rank, and that a step uses train.accumulate batches");
  const auto two = losses_of_training(attempt, attempt.path(), "two", 2);
  const auto config = attempt.folder() + "/one.yaml";
  base::replace_file(config, kOneProcess);
  const auto one = losses_of_training(attempt, config, "one", 1);
  expect(two.size() == one.size(),
         format("two ranks took {} steps, but the one process took {}", two.size(), one.size()),
         "change only the marked values: the others are correct");
  for (size_t step = 0; step < one.size(); ++step)
    expect(agree(two[step], one[step]),
           format("step {} has a loss of {:.5f} on two ranks, but {:.5f} in one process", step + 1, two[step],
                  one[step]),
           step == 0 ? "compare where parameters and samples come from: the losses differ before any step"
                     : "find what else a step depends on: the losses differ only after a step, so samples "
                       "and gradients are equal");
}

// --- compare.2: a race

double median(Row values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

CHECK_OF("compare.2", attempt) {
  struct Race {
    double dp_samples;
    Row dp;
    double ddp_samples;
    Row ddp;
    int repeats;
  };
  const Race races[] = {
      {256, {900, 320, 300, 250, 245, 250, 700}, 512, {800, 90, 265, 245, 260, 255, 250}, 3},
      {128, {400, 90, 60, 75, 62, 300}, 128, {500, 80, 41, 39, 90, 40}, 5},
  };
  for (const auto& [dp_samples, dp, ddp_samples, ddp, repeats] : races) {
    const auto run =
        attempt.run({.world = 1,
                     .args = {shown(dp_samples), base::join(as_words(dp), " "), shown(ddp_samples),
                              base::join(as_words(ddp), " "), std::to_string(repeats)},
                     .alone = true});
    const auto& rank = run.ranks[0];
    const auto& text = rank.text("order");
    const auto order = base::split(base::trimmed(text), ' ');
    expect(std::count(order.begin(), order.end(), "dp") == repeats &&
               std::count(order.begin(), order.end(), "ddp") == repeats && std::ssize(order) == 2 * repeats,
           format("order_of_runs({}) is '{}', but each way must run {} times", repeats, text, repeats));
    for (size_t i = 0; i < order.size(); i += 2)
      expect(order[i] != order[i + 1],
             format("the order is {}: one way finishes before the other begins", text),
             "what if the machine is busy in the first half and idle in the second?");
    // the first two steps warm up
    const double dp_step = median({dp.begin() + 2, dp.end()}),
                 ddp_step = median({ddp.begin() + 2, ddp.end()});
    constexpr const char* kThink =
        "usual_step(): the median of a run's steps without the first kWarmUp; for an even number, the mean "
        "of the two in the middle";
    rank.expect_number("dp", dp_step, kThink);
    rank.expect_number("ddp", ddp_step, kThink);
    rank.expect_number("faster", ddp_samples / ddp_step / (dp_samples / dp_step),
                       "compute how many times as fast DDP is, in samples per second of a usual step");
  }
}

}  // namespace
}  // namespace lockstep::workshop
