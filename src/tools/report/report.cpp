// The page of one run, or of several side by side.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "lockstep/base/format.h"
#include "tools/report/page.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Runs = std::vector<RunData>;

// --- the result of each run ---

void add_result(Page& page, const Runs& runs) {
  constexpr std::pair<const char*, const char*> kMetrics[] = {{"training loss", "train_loss"},
                                                              {"evaluation loss", "eval_loss"},
                                                              {"accuracy", "accuracy"},
                                                              {"mean absolute error", "mae"},
                                                              {"R²", "r2"},
                                                              {"reward", "recent_reward"}};
  Table rows = {{"run", "task", "result"}};
  for (const auto& run : runs) rows.push_back({run.name, setting(run, "task.name"), run.outcome});
  for (const auto& [head, metric] : kMetrics) {
    std::vector<std::string> column;
    for (const auto& run : runs) column.push_back(metric_text(last_of(run, metric)));
    if (std::ranges::count(column, "–") == std::ssize(column)) continue;
    rows[0].emplace_back(head);
    for (size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(column[i]);
  }
  page.section("Result");
  page.table(runs.size() == 1 ? transposed(rows) : rows);  // a phone has room for rows
}

// --- curves ---

constexpr size_t kMostPoints = 2000;  // of a curve

// The points that can be drawn; of very many, in each group the first, the lowest, the highest and the last.
std::vector<size_t> kept_points(const Curve& curve) {
  std::vector<size_t> points, kept;
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i)
    if (std::isfinite(curve.x[i]) && std::isfinite(curve.y[i])) points.push_back(i);
  if (points.size() <= kMostPoints) return points;
  const auto group = static_cast<std::ptrdiff_t>((4 * points.size() + kMostPoints - 1) / kMostPoints);
  for (auto first = points.begin(); first != points.end();) {
    const auto last = first + std::min(group, points.end() - first);
    const auto [low, high] = std::minmax_element(
        first, last, [&](size_t left, size_t right) { return curve.y[left] < curve.y[right]; });
    std::vector<size_t> ends = {*first, *low, *high, *(last - 1)};
    std::ranges::sort(ends);
    std::ranges::unique_copy(ends, std::back_inserter(kept));
    first = last;
  }
  return kept;
}

ordered_json curve_json(const Curve& curve) {
  ordered_json json = {{"x", ordered_json::array()}, {"y", ordered_json::array()}};
  for (const size_t i : kept_points(curve)) {
    json["x"].push_back(curve.x[i]);
    json["y"].push_back(
        std::strtod(format("{:.7g}", curve.y[i]).c_str(), nullptr));  // more than a picture shows
  }
  return json;
}

// Those that page.html draws, of steps and of epochs.
void add_curves(Page& page, const Runs& runs) {
  constexpr const char* kDrawn[] = {"loss",   "train_loss",    "eval_loss", "accuracy",          "mae",
                                    "reward", "recent_reward", "lr",        "samples_per_second"};
  auto all = ordered_json::array();
  for (const auto& run : runs) {
    ordered_json steps, epochs;
    for (const auto* name : kDrawn) {
      if (const auto found = run.steps.find(name); found != run.steps.end())
        steps[name] = curve_json(found->second);
      if (const auto found = run.epochs.find(name); found != run.epochs.end())
        epochs[name] = curve_json(found->second);
    }
    all.push_back(
        {{"name", run.name}, {"task", setting(run, "task.name")}, {"steps", steps}, {"epochs", epochs}});
  }
  page.section("Curves");
  page.add("curves", all);
}

// --- what the last evaluation got wrong ---

void add_evaluation(Page& page, const Runs& runs) {
  constexpr size_t kMostClasses = 64;
  page.section("Evaluation");
  for (const auto& run : runs) {
    json evaluation = at(run.facts, "evaluation");
    if (!evaluation.is_object()) continue;
    if (runs.size() > 1) page.add("heading", run.name);
    const auto classes = list(evaluation, "confusion").size();
    if (classes > kMostClasses) evaluation.erase("confusion");
    page.add("evaluation", evaluation);
    if (classes > kMostClasses) page.note(format("{} classes are too many for a table.", classes));
  }
}

// --- where each rank's time went, in the newest attempt that measured it ---

void add_phases(Page& page, const Runs& runs) {
  page.section("Phases");
  for (const auto& run : runs) {
    ordered_json bars;
    for (const auto& attempt : list(run.facts, "attempts")) {
      const auto& measured = at(attempt, "phases");
      const auto& ranks = list(measured, "ranks");
      if (ranks.empty()) continue;
      bars = {
          {"title", format("{}: where the time of attempt {:.0f} went", run.name, number(attempt, "number"))},
          {"y_label", "time (s)"},
          {"names", ordered_json::array()},
          {"parts", list(measured, "names")},
          {"values", ranks}};
      for (size_t rank = 0; rank < ranks.size(); ++rank) bars["names"].push_back(format("rank {}", rank));
    }
    if (!bars.is_null()) page.add("bars", bars);
  }
}

// --- stops and restarts ---

void add_attempts(Page& page, const Runs& runs) {
  page.section("Stops and restarts");
  for (const auto& run : runs) {
    const auto& attempts = list(run.facts, "attempts");
    if (attempts.empty()) continue;
    if (runs.size() > 1) page.add("heading", run.name);
    const bool is_running = run.status && run.status->state == run_folder::RunState::running;
    page.add("attempts", {{"attempts", attempts}, {"is_running", is_running}});
  }
}

// --- configs ---

void add_configs(Page& page, const Runs& runs) {
  if (runs.size() == 1 && runs[0].config.empty()) return;
  auto all = ordered_json::array();
  for (const auto& run : runs)
    all.push_back({{"name", run.name}, {"text", run.config}, {"settings", run.settings}});
  page.section("Config");
  page.add("configs", all);
}

void add_troubles(Page& page, const Runs& runs) {
  page.section("Files that could not be read");
  for (const auto& run : runs)
    for (const auto& trouble : run.troubles) page.note(run.name + ": " + trouble);
}

// Folders of one name are shown with their whole paths.
void number_equal_names(Runs& runs) {
  std::map<std::string, int> seen;
  for (const auto& run : runs) ++seen[run.name];
  for (auto& run : runs)
    if (seen[run.name] > 1) run.name = run.folder;
}

}  // namespace

std::string report(const std::vector<std::filesystem::path>& folders) {
  Runs runs;
  for (const auto& folder : folders) runs.push_back(read_run(folder, /*with_facts=*/true));
  number_equal_names(runs);
  Page page(runs.size() == 1 ? runs[0].name : format("{} runs", runs.size()));
  for (const auto add :
       {add_result, add_curves, add_evaluation, add_phases, add_attempts, add_configs, add_troubles})
    add(page, runs);
  return page.html();
}

}  // namespace lockstep::report
