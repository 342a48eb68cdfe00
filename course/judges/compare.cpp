// Chapter 10: DP against DDP.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "course/judges/shared.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- compare.1: the steps of one process on two ranks

constexpr int kComparedSteps = 6, kBatch = 64;
constexpr const char* kOneProcess = R"(
run: {name: one, seed: 7}
task: {name: mnist}
model: {name: mlp, hidden: [64]}
data: {root: data/mnist, workers: 0, batch_size: 64}
optim: {name: sgd, momentum: 0.9, lr: 0.01}
train: {epochs: 1, max_steps: 6, log_every: 1, eval_every: 0}
)";

std::vector<double> losses_of(const std::string& run_folder) {
  std::vector<double> losses;
  std::istringstream lines(base::read_text(run_folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = base::parse_json(line);
    if (row.is_object() && row.value("event", "") == "step") losses.push_back(row.value("loss", 0.0));
  }
  return losses;
}

std::vector<double> losses_of_training(Attempt& attempt, const std::string& config, const std::string& name,
                                       int world) {
  attempt.lockstep({"train", config, "--set", "run.name=" + name, "--set", "run.dir=runs", "--set",
                    format("train.max_steps={}", kComparedSteps), "--set", "train.log_every=1"},
                   {.world = world, .alone = world == 1});
  return losses_of(attempt.folder() + "/runs/" + name);
}

void judge_losses(const Row& two, const Row& one) {
  expect(two.size() == one.size(),
         format("two ranks took {} steps, and the one process {}", two.size(), one.size()), {},
         "what is not marked is right already: leave it as it was");
  for (size_t step = 0; step < one.size(); ++step)
    expect(near(two[step], one[step], 1e-5),
           format("step {} has a loss of {:.5f} on two ranks, and of {:.5f} in one process", step + 1,
                  two[step], one[step]),
           {{step == 0, "they differ before any step is taken",
             "at the start there are the parameters and the samples: where do both come from?"},
            {true, "the losses before are equal, and go apart after a step",
             "same samples, same gradients: what else goes into a step?"}});
}

void judge_batch(const YAML::Node& settings) {
  const int batch = settings["data"]["batch_size"].as<int>(),
            often = settings["train"]["accumulate"].as<int>();
  const auto each =
      often == 1 ? format("{} samples each", batch) : format("{} times {} samples each", often, batch);
  expect(2 * batch * often == kBatch,
         format("two ranks with {} take {} samples a step, and the one process took {}", each,
                2 * batch * often, kBatch),
         {}, "data.batch_size is a rank's, and train.accumulate takes so many of them for a step");
}

LOCKSTEP_JUDGE("compare.1", attempt) {
  judge_batch(settings_of(attempt));
  const auto two = losses_of_training(attempt, attempt.path(), "two", 2);
  const auto config = attempt.folder() + "/one.yaml";
  base::replace_file(config, kOneProcess);
  judge_losses(two, losses_of_training(attempt, config, "one", 1));
}

// --- compare.2: a race

Row sorted(Row values) {
  std::sort(values.begin(), values.end());
  return values;
}

double median(const Row& values) {
  const auto all = sorted(values);
  return (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
}

// without the first ones
Row behind(const Row& values, std::ptrdiff_t first = 2) {
  return {values.begin() + first, values.end()};
}

double mean(const Row& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void judge_runs(const std::string& text, int repeats) {
  const auto order = base::split(base::trimmed(text), ' ');
  const auto dp = std::count(order.begin(), order.end(), "dp"),
             ddp = std::count(order.begin(), order.end(), "ddp");
  expect(dp + ddp > 0, format("order_of_runs({}) is empty: nothing is run", repeats), {},
         "so many runs of each way: in which order?");
  expect(dp == repeats && ddp == repeats && dp + ddp == std::ssize(order),
         format("order_of_runs({}) runs dp {} times and ddp {} times, and each is to be run {} times",
                repeats, dp, ddp, repeats),
         {{repeats != 3 && dp == 3 && ddp == 3, "three, whatever `repeats` is",
           "how many repeats a race has is for its caller to say"}});
  for (size_t i = 0; i < order.size(); i += 2)
    expect(order[i] != order[i + 1], format("the order is {}: one way is done before the other begins", text),
           {}, "what if the machine is busy in the first half, and idle in the second?");
}

void judge_usual(double is, const Row& times) {
  const auto warm = behind(times);
  const auto all = sorted(warm);
  const bool is_one_of_two = near(is, all[all.size() / 2]) || near(is, all[(all.size() - 1) / 2]);
  expect(
      near(is, median(warm)),
      format("usual_step() of {} says {} ms, and it is {}", shown(times), shown(is), shown(median(warm))),
      {{near(is, median(times)), "the first steps are in it", "a run's first two steps warm up"},
       {near(is, mean(warm)), "that is the mean",
        "one slow step of five moves it; which number does it not move?"},
       {near(is, median(behind(sorted(times)))), "sorted first, the two that fall away are the fastest",
        "the steps that warm up come first in time"},
       {is_one_of_two, "that is one of the two in the middle", "their mean is the median of an even number"},
       {near(is, median(behind(times, 1))), "that is without the first 1", "kWarmUp says how many"},
       {near(is, warm[warm.size() / 2]), "that is the time in the middle as it happened to come",
        "the median is the middle of the sorted times"}});
}

// a race: samples a step and times, of dp and of ddp
void judge_faster(double is, double dp_samples, const Row& dp_times, double ddp_samples,
                  const Row& ddp_times) {
  const auto faster = [&](double (*usual)(const Row&)) {
    return ddp_samples / usual(behind(ddp_times)) / (dp_samples / usual(behind(dp_times)));
  };
  const double wanted = faster(median), more = ddp_samples / dp_samples;
  expect(
      near(is, wanted),
      format("ddp_is_faster() says {}, and it is {} ({} samples a step against {})", shown(is), shown(wanted),
             ddp_samples, dp_samples),
      {{near(is, 1 / wanted), "the other way round", "2 is to mean: DDP is twice as fast"},
       {near(is, wanted / more), "that compares steps", "a step of DDP had more samples in it here"},
       {near(is, more / wanted), "that compares steps, and the other way round", "compare samples a second"},
       {near(is, faster(mean)), "that compares means", "usual_step() is a step's time here, too"},
       {near(is, ddp_samples / median(behind(ddp_times)) - dp_samples / median(behind(dp_times))),
        "that is a difference", "how many times as fast?"}});
}

LOCKSTEP_JUDGE("compare.2", attempt) {
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
    judge_runs(run.ranks[0].text("order"), repeats);
    judge_usual(run.ranks[0].number("dp"), dp);
    judge_usual(run.ranks[0].number("ddp"), ddp);
    judge_faster(run.ranks[0].number("faster"), dp_samples, dp, ddp_samples, ddp);
  }
}

}  // namespace
}  // namespace lockstep::workshop
