// Loss, accuracy, learning rate and speed, of all runs in one picture each.
#include <array>

#include "lockstep/base/format.h"
#include "lockstep/plot/chart.h"
#include "lockstep/plot/page.h"
#include "lockstep/plot/pictures.h"
#include "lockstep/report/parts.h"

namespace lockstep::report {
namespace {

struct Source {
  bool of_epochs;
  const char *key, *name;
};
struct Picture {
  const char *title, *label;
  std::vector<Source> sources;
};

const std::vector<Picture>& pictures() {
  static const std::vector<Picture> table = {
      {"Loss", "loss", {{false, "loss", "training"}, {true, "eval_loss", "evaluation"}}},
      {"Accuracy", "share of the evaluation set", {{true, "accuracy", "accuracy"}}},
      {"Reward",
       "of an episode",
       {{true, "reward", "a round's"}, {true, "recent_reward", "the last episodes'"}}},
      {"Learning rate", "learning rate", {{false, "lr", "learning rate"}}},
      {"Speed", "samples a second, all ranks", {{false, "samples_per_second", "samples/s"}}}};
  return table;
}

plot::Chart chart_of(const Runs& runs, const Picture& picture) {
  plot::Chart chart = {.title = picture.title, .x_label = "step", .y_label = picture.label, .series = {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    for (const auto& [of_epochs, key, name] : picture.sources) {
      const auto& curves = of_epochs ? run.epochs : run.steps;
      const auto found = curves.find(key);
      if (found == curves.end()) continue;
      const auto one = picture.sources.size() == 1 ? run.name : run.name + ", " + name;
      plot::Series series{runs.size() == 1 ? name : one, found->second.x, found->second.y};
      if (runs.size() > 1) {  // a run has one colour in all pictures
        series.look = static_cast<int>(i);
        series.dashed = of_epochs && picture.sources.size() > 1;
      }
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

// What would have drawn the training's curves, and is missing.
std::string without_steps(const Runs& runs) {
  std::string names;
  for (const auto& run : runs) {
    if (!run.steps.contains("loss") && !run.epochs.empty()) names += (names.empty() ? "" : ", ") + run.name;
  }
  if (names.empty()) return "";
  return format(
      "<p class=\"soft\">No step{} was logged (train.log_every), so there is no curve of the training loss, "
      "the learning rate and the speed.</p>\n",
      runs.size() == 1 ? "" : " of " + plot::escaped(names));
}

}  // namespace

std::string run_heading(const Runs& runs, const RunData& run) {
  return runs.size() == 1 ? "" : "<h3>" + plot::escaped(run.name) + "</h3>\n";
}

std::string curves(const Runs& runs) {
  std::vector<plot::Draw> cards;
  for (const auto& picture : pictures()) {
    auto chart = chart_of(runs, picture);
    if (!chart.series.empty()) cards.push_back(plot::drawn(std::move(chart)));
  }
  return cards.empty() ? "<p class=\"soft\">No step was logged.</p>"
                       : plot::pictures(cards) + without_steps(runs);
}

}  // namespace lockstep::report
