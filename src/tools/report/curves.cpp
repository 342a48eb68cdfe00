// Loss, accuracy, learning rate and speed: of all runs of a task in one picture each.
#include <algorithm>

#include "lockstep/base/format.h"
#include "tools/plot/chart.h"
#include "tools/plot/page.h"
#include "tools/plot/pictures.h"
#include "tools/report/parts.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

// From the steps, or, where none was logged, from the epochs; null where there is no such thing.
struct Source {
  const char *step_key, *epoch_key, *name;
};
struct Picture {
  const char *title, *label;
  std::vector<Source> sources;
};

const std::vector<Picture>& pictures() {
  static const std::vector<Picture> table = {
      {"Loss", "loss", {{"loss", "train_loss", "training"}, {nullptr, "eval_loss", "evaluation"}}},
      {"Accuracy", "share of the evaluation set", {{nullptr, "accuracy", "accuracy"}}},
      {"Reward",
       "of an episode",
       {{nullptr, "reward", "a round's"}, {nullptr, "recent_reward", "the last episodes'"}}},
      {"Learning rate", "learning rate", {{"lr", nullptr, "learning rate"}}},
      {"Speed", "samples a second, all ranks", {{"samples_per_second", "samples_per_second", "samples/s"}}}};
  return table;
}

const Curve* curve_of(const RunData& run, const Source& source) {
  for (const auto& [curves, key] :
       {std::pair(&run.steps, source.step_key), std::pair(&run.epochs, source.epoch_key)}) {
    if (!key) continue;
    if (const auto found = curves->find(key); found != curves->end()) return &found->second;
  }
  return nullptr;
}

// Those of these runs; a run has one colour in all pictures.
plot::Chart chart_of(const Runs& runs, const std::vector<size_t>& of, const Picture& picture) {
  plot::Chart chart = {.title = picture.title, .x_label = "step", .y_label = picture.label, .series = {}};
  const auto& sources = picture.sources;
  for (const size_t i : of) {
    for (size_t j = 0; j < sources.size(); ++j) {
      const auto* curve = curve_of(runs[i], sources[j]);
      if (!curve) continue;
      const auto name = sources.size() == 1 ? runs[i].name : runs[i].name + ", " + sources[j].name;
      plot::Series series{runs.size() == 1 ? sources[j].name : name, curve->x, curve->y};
      if (runs.size() > 1) {
        series.look = static_cast<int>(i);
        series.dashed = j > 0;
      }
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

struct TaskRuns {
  std::string task;
  std::vector<size_t> runs;
};

// The loss of one task says nothing beside another's.
std::vector<TaskRuns> by_task(const Runs& runs) {
  std::vector<TaskRuns> tasks;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto task = setting(runs[i], "task.name");
    auto found = std::ranges::find(tasks, task, &TaskRuns::task);
    if (found == tasks.end()) found = tasks.insert(found, {task, {}});
    found->runs.push_back(i);
  }
  return tasks;
}

// What would have drawn the training's curves, and is missing.
std::string without_steps(const Runs& runs) {
  std::string names;
  for (const auto& run : runs) {
    if (!run.steps.contains("loss") && !run.epochs.empty()) names += (names.empty() ? "" : ", ") + run.name;
  }
  if (names.empty()) return "";
  return format(
      "<p class=\"soft\">No step{} was logged (train.log_every): the training loss and the speed are an "
      "epoch's, "
      "and there is no curve of the learning rate.</p>\n",
      runs.size() == 1 ? "" : " of " + plot::escaped(names));
}

}  // namespace

std::string run_heading(const Runs& runs, const RunData& run) {
  return runs.size() == 1 ? "" : "<h3>" + plot::escaped(run.name) + "</h3>\n";
}

std::string curves(const Runs& runs) {
  std::string html;
  const auto tasks = by_task(runs);
  for (const auto& task : tasks) {
    std::vector<plot::Draw> cards;
    for (const auto& picture : pictures()) {
      auto chart = chart_of(runs, task.runs, picture);
      if (!chart.series.empty()) cards.push_back(plot::drawn(std::move(chart)));
    }
    if (cards.empty()) continue;
    if (tasks.size() > 1) html += "<h3>Task " + plot::escaped(task.task) + "</h3>\n";
    html += plot::pictures(cards);
  }
  return html.empty() ? "<p class=\"soft\">No step was logged.</p>" : html + without_steps(runs);
}

}  // namespace lockstep::report
