// Chapter 10: DP against DDP.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/workshop/judges/answer.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
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

void judge_losses(const std::vector<double>& two, const std::vector<double>& one) {
  if (two.size() != one.size())
    throw NotYet(format("two ranks took {} steps, and the one process {}", two.size(), one.size()),
                 "what is not marked is right already: leave it as it was");
  for (size_t step = 0; step < one.size(); ++step) {
    const double is = two[step];
    if (near(is, one[step], 1e-5)) continue;
    const auto what = format("step {} has a loss of {:.5f} on two ranks, and of {:.5f} in one process",
                             step + 1, is, one[step]);
    if (step == 0)
      throw NotYet(what + ": they differ before any step is taken",
                   "at the start there are the parameters and the samples: where do both come from?");
    throw NotYet(what + ": the losses before are equal, and go apart after a step",
                 "same samples, same gradients: what else goes into a step?");
  }
}

void judge_batch(const Settings& settings) {
  const auto batch = settings.data.batch_size, often = settings.train.accumulate, all = 2 * batch * often;
  if (all == kBatch) return;
  const auto each =
      often == 1 ? format("{} samples each", batch) : format("{} times {} samples each", often, batch);
  throw NotYet(
      format("two ranks with {} take {} samples a step, and the one process took {}", each, all, kBatch),
      often == 1 ? "data.batch_size is a rank's"
                 : "data.batch_size is a rank's, and train.accumulate takes so many of them for a step");
}

LOCKSTEP_JUDGE("compare.1", attempt) {
  judge_batch(settings_of(attempt));
  const auto two = losses_of_training(attempt, attempt.path(), "two", 2);
  const auto config = attempt.folder() + "/one.yaml";
  base::replace_file(config, kOneProcess);
  judge_losses(two, losses_of_training(attempt, config, "one", 1));
}

// --- compare.2: a race

struct Race {
  double dp_samples;
  std::vector<double> dp;
  double ddp_samples;
  std::vector<double> ddp;
  int repeats;
};

const std::vector<Race>& races() {
  static const std::vector<Race> made = {
      {256, {900, 320, 300, 250, 245, 250, 700}, 512, {800, 90, 265, 245, 260, 255, 250}, 3},
      {128, {400, 90, 60, 75, 62, 300}, 128, {500, 80, 41, 39, 90, 40}, 5},
  };
  return made;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<double> warm(const std::vector<double>& values) {
  return {values.begin() + 2, values.end()};
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void judge_runs(const std::string& text, int repeats) {
  std::istringstream words(text);
  std::vector<std::string> order;
  for (std::string word; words >> word;) order.push_back(word);
  if (order.empty())
    throw NotYet(format("order_of_runs({}) is empty: nothing is run", repeats),
                 "so many runs of each way: in which order?");
  const auto dp = std::count(order.begin(), order.end(), "dp");
  const auto ddp = static_cast<std::ptrdiff_t>(order.size()) - dp;
  const auto what = format("order_of_runs({}) runs dp {} times and ddp {} times", repeats, dp, ddp);
  if (repeats != 3 && dp == 3 && ddp == 3)
    throw NotYet(what + ": three, whatever `repeats` is",
                 "how many repeats a race has is for its caller to say");
  if (dp != repeats || ddp != repeats)
    throw NotYet(what + format(", and each is to be run {} times", repeats));
  for (size_t i = 0; i < order.size(); i += 2) {
    if (order[i] == order[i + 1])
      throw NotYet(format("the order is {}: one way is done before the other begins", base::join(order, " ")),
                   "what if the machine is busy in the first half, and idle in the second?");
  }
}

void judge_usual(const char* name, double is, const std::vector<double>& times) {
  const double wanted = median(warm(times));
  if (near(is, wanted)) return;
  const auto what =
      format("usual_step() of {} says {} ms, and it is {}", shown(times), shown(is), shown(wanted));
  if (near(is, median(times)))
    throw NotYet(what + ": the first steps are in it", "a run's first two steps warm up");
  if (near(is, mean(warm(times))))
    throw NotYet(what + ": that is the mean",
                 "one slow step of five moves it; which number does it not move?");
  if (near(is, median(warm(sorted(times)))))
    throw NotYet(what + ": sorted first, the two that fall away are the fastest",
                 "the steps that warm up come first in time");
  for (const size_t half : {warm(times).size() / 2, (warm(times).size() - 1) / 2}) {
    if (near(is, sorted(warm(times))[half]))
      throw NotYet(what + ": that is one of the two in the middle",
                   "their mean is the median of an even number");
  }
  for (const size_t skipped : {1, 3}) {
    if (near(is, median({times.begin() + static_cast<std::ptrdiff_t>(skipped), times.end()})))
      throw NotYet(format("{}: that is without the first {}", what, skipped), "kWarmUp says how many");
  }
  if (near(is, mean(times))) throw NotYet(what + ": that is the mean, with the steps that warm up");
  if (near(is, times[2 + warm(times).size() / 2]))
    throw NotYet(what + ": that is the time in the middle as it happened to come",
                 "the median is the middle of the sorted times");
  throw NotYet(what, format("of {}", name));
}

void judge_faster(double is, const Race& race) {
  const double dp = race.dp_samples / median(warm(race.dp)), ddp = race.ddp_samples / median(warm(race.ddp));
  if (near(is, ddp / dp)) return;
  const auto what = format("ddp_is_faster() says {}, and it is {} ({} samples a step against {})", shown(is),
                           shown(ddp / dp), shown(race.ddp_samples), shown(race.dp_samples));
  if (near(is, dp / ddp)) throw NotYet(what + ": the other way round", "2 is to mean: DDP is twice as fast");
  if (near(is, ddp / dp * race.dp_samples / race.ddp_samples))
    throw NotYet(what + ": that compares steps", "a step of DDP had more samples in it here");
  if (near(is, dp / ddp * race.ddp_samples / race.dp_samples))
    throw NotYet(what + ": that compares steps, and the other way round", "compare samples a second");
  if (near(is, race.ddp_samples / mean(warm(race.ddp)) / (race.dp_samples / mean(warm(race.dp)))) ||
      near(is, race.ddp_samples / mean(race.ddp) / (race.dp_samples / mean(race.dp))))
    throw NotYet(what + ": that compares means", "usual_step() is a step's time here, too");
  if (near(is, race.ddp_samples / race.ddp.front() / (race.dp_samples / race.dp.front())))
    throw NotYet(what + ": that compares the first steps", "usual_step() is a step's time here, too");
  if (near(is, ddp - dp)) throw NotYet(what + ": that is a difference", "how many times as fast?");
  throw NotYet(what);
}

LOCKSTEP_JUDGE("compare.2", attempt) {
  for (const auto& race : races()) {
    const auto words = [](const std::vector<double>& times) {
      std::string text;
      for (const double time : times) text += shown(time) + " ";
      return text;
    };
    const auto run = attempt.run({.world = 1,
                                  .args = {shown(race.dp_samples), words(race.dp), shown(race.ddp_samples),
                                           words(race.ddp), std::to_string(race.repeats)},
                                  .alone = true});
    judge_runs(run.ranks[0].text("order"), race.repeats);
    judge_usual("dp", run.ranks[0].number("dp"), race.dp);
    judge_usual("ddp", run.ranks[0].number("ddp"), race.ddp);
    judge_faster(run.ranks[0].number("faster"), race);
  }
}

}  // namespace
}  // namespace lockstep::workshop
