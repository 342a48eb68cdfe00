// The page of one run, or of several side by side.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/report/page.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Runs = std::vector<RunData>;

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

void name_run(Page& page, const Runs& runs, const RunData& run) {
  if (runs.size() > 1) page.add("heading", run.name);
}

// --- the result of each run ---

std::string last_of(const RunData& run, const char* metric, int digits) {
  const auto found = run.epochs.find(metric);
  if (found == run.epochs.end() || found->second.y.empty()) return "";
  return format("{:.{}f}", found->second.y.back(), digits);
}

void add_result(Page& page, const Runs& runs) {
  struct Metric {
    const char *head, *name;
    int digits;
  };
  constexpr Metric kMetrics[] = {{"training loss", "train_loss", 4},
                                 {"evaluation loss", "eval_loss", 4},
                                 {"accuracy", "accuracy", 4},
                                 {"reward", "recent_reward", 2}};
  Table rows = {{"run", "task", "result"}};
  for (const auto& run : runs) rows.push_back({run.name, setting(run, "task.name"), run.outcome});
  for (const auto& [head, metric, digits] : kMetrics) {
    std::vector<std::string> column;
    for (const auto& run : runs) column.push_back(last_of(run, metric, digits));
    if (std::ranges::all_of(column, &std::string::empty)) continue;
    rows[0].emplace_back(head);
    for (size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(column[i]);
  }
  page.section("Result");
  page.table(runs.size() == 1 ? turned(rows) : rows);  // a phone has room for rows
}

// --- curves ---

// From the steps or, where none was logged, from the epochs; null where there is no such value.
struct Source {
  const char *step_key, *epoch_key, *name;
};
struct Picture {
  const char *title, *label;
  std::vector<Source> sources;
};

const Curve* curve_of(const RunData& run, const Source& source) {
  for (const auto& [curves, key] :
       {std::pair(&run.steps, source.step_key), std::pair(&run.epochs, source.epoch_key)}) {
    if (!key) continue;
    if (const auto found = curves->find(key); found != curves->end()) return &found->second;
  }
  return nullptr;
}

// A run has the same colour in all pictures.
Chart chart_of(const Runs& runs, const std::vector<size_t>& members, const Picture& picture) {
  Chart chart = {.title = picture.title, .x_label = "step", .y_label = picture.label, .series = {}};
  const auto& sources = picture.sources;
  for (const size_t i : members) {
    for (size_t j = 0; j < sources.size(); ++j) {
      const auto* curve = curve_of(runs[i], sources[j]);
      if (!curve) continue;
      const auto name = sources.size() == 1 ? runs[i].name : runs[i].name + ", " + sources[j].name;
      const bool alone = runs.size() == 1;
      chart.series.push_back({alone ? sources[j].name : name, curve->x, curve->y, !alone && j > 0,
                              alone ? -1 : static_cast<int>(i)});
    }
  }
  return chart;
}

// Runs of one task share their axes: its loss says nothing beside another task's.
void add_curves(Page& page, const Runs& runs) {
  static const std::vector<Picture> pictures = {
      {"Loss", "loss", {{"loss", "train_loss", "training"}, {nullptr, "eval_loss", "evaluation"}}},
      {"Accuracy", "share of the evaluation set", {{nullptr, "accuracy", "accuracy"}}},
      {"Reward",
       "of an episode",
       {{nullptr, "reward", "a round's"}, {nullptr, "recent_reward", "the last episodes'"}}},
      {"Learning rate", "learning rate", {{"lr", nullptr, "learning rate"}}},
      {"Speed", "samples/s of all ranks", {{"samples_per_second", "samples_per_second", "samples/s"}}}};
  std::vector<std::pair<std::string, std::vector<size_t>>> tasks;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto task = setting(runs[i], "task.name");
    auto found = std::ranges::find(tasks, task, [](const auto& one) { return one.first; });
    if (found == tasks.end()) found = tasks.insert(found, {task, {}});
    found->second.push_back(i);
  }
  page.section("Curves");
  bool any = false;
  for (const auto& [task, members] : tasks) {
    bool named = tasks.size() == 1;
    for (const auto& picture : pictures) {
      const auto chart = chart_of(runs, members, picture);
      if (chart.series.empty()) continue;
      if (!std::exchange(named, true)) page.add("heading", "Task " + task);
      page.add("chart", chart_json(chart));
      any = true;
    }
  }
  if (!any) page.note("No step was logged.");
}

// --- what the last evaluation got wrong ---

std::string class_name(const json& evaluation, double index) {
  const auto& names = list(evaluation, "classes");
  if (!(index >= 0)) return "?";
  const auto i = static_cast<size_t>(std::min(index, 1e9));
  return i < names.size() && names[i].is_string() ? names[i].get<std::string>() : format("{}", i);
}

double count_of(const json& row, size_t column) {
  return row.is_array() && column < row.size() && row[column].is_number() ? row[column].get<double>() : 0;
}

void add_confusion(Page& page, const json& evaluation) {
  constexpr size_t kMostClasses = 64;
  const auto& rows = list(evaluation, "confusion");
  if (rows.size() > kMostClasses) page.note(format("{} classes are too many for a table.", rows.size()));
  if (rows.empty() || rows.size() > kMostClasses) return;
  ordered_json table = {{"classes", ordered_json::array()}, {"rows", ordered_json::array()}};
  for (size_t i = 0; i < rows.size(); ++i) {
    table["classes"].push_back(class_name(evaluation, static_cast<double>(i)));
    std::vector<double> counts;
    for (size_t j = 0; j < rows.size(); ++j) counts.push_back(std::max(0.0, count_of(rows[i], j)));
    table["rows"].push_back(counts);
  }
  page.add("confusion", std::move(table));
}

// Bytes in hexadecimal, of one channel or of three.
bool is_image(const json& sample) {
  constexpr int64_t kMostPixels = 512;  // along a side
  const auto& shape = list(sample, "shape");
  const auto pixels = text(sample, "pixels");
  int64_t bytes = 1;
  for (const auto& size : shape) {
    if (!size.is_number_integer() || size < 1 || size > kMostPixels) return false;
    bytes *= size.get<int64_t>();
    if (bytes > 3 * kMostPixels * kMostPixels) return false;
  }
  return shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) &&
         pixels.size() == static_cast<size_t>(2 * bytes) &&
         pixels.find_first_not_of("0123456789abcdef") == std::string::npos;
}

ordered_json shot(const json& evaluation, const json& sample) {
  const double loss = number(sample, "loss");
  ordered_json shot = {
      {"caption",
       format("{} ({:.0f} %), is {}", class_name(evaluation, number(sample, "told")),
              100 * number(sample, "probability"), class_name(evaluation, number(sample, "truth")))},
      {"note", format("sample {:.0f}, {}", number(sample, "sample"),
                      std::isfinite(loss) ? format("loss {:.2f}", loss) : "no number")}};
  if (is_image(sample)) {
    shot["shape"] = sample["shape"];
    shot["pixels"] = sample["pixels"];
  }
  return shot;
}

// A sample may have a high loss and be right nevertheless.
void add_worst(Page& page, const json& evaluation) {
  constexpr size_t kMostSamples = 48;
  for (const auto& [right, heading] :
       {std::pair(false, "Wrong, with the highest loss"), {true, "Right, with the lowest confidence"}}) {
    auto shots = ordered_json::array();
    for (const auto& sample : list(evaluation, "worst")) {
      if ((number(sample, "told") == number(sample, "truth")) == right && shots.size() < kMostSamples)
        shots.push_back(shot(evaluation, sample));
    }
    if (shots.empty()) continue;
    page.add("heading", heading);
    page.add("shots", std::move(shots));
  }
}

void add_evaluation(Page& page, const Runs& runs) {
  if (std::ranges::none_of(runs, [](const auto& run) { return at(run.facts, "evaluation").is_object(); }))
    return;
  page.section("Evaluation");
  for (const auto& run : runs) {
    const auto& evaluation = at(run.facts, "evaluation");
    if (!evaluation.is_object()) continue;
    name_run(page, runs, run);
    std::vector<std::string> values;
    if (const auto& all = at(evaluation, "values"); all.is_object()) {
      for (const auto& [name, value] : all.items())
        values.push_back(name + " " +
                         (value.is_number() ? format("{:.4f}", value.get<double>()) : "no number"));
    }
    page.text(format("After step {:.0f}: {}", number(evaluation, "step"), base::join(values, ", ")));
    add_confusion(page, evaluation);
    add_worst(page, evaluation);
  }
}

// --- where each rank's time went, in the newest attempt that measured it ---

void add_phases(Page& page, const Runs& runs) {
  bool any = false;
  for (const auto& run : runs) {
    Bars bars;
    for (const auto& attempt : list(run.facts, "attempts")) {
      const auto& measured = at(attempt, "phases");
      if (list(measured, "ranks").empty()) continue;
      bars = {format("{}: where the time of attempt {:.0f} went", run.name, number(attempt, "number")),
              "time (s)",
              {},
              {},
              {}};
      for (const auto& name : list(measured, "names")) bars.parts.push_back(text_of(name));
      for (const auto& rank : list(measured, "ranks")) {
        bars.names.push_back(format("rank {}", bars.names.size()));
        bars.values.emplace_back();
        for (size_t i = 0; rank.is_array() && i < rank.size(); ++i)
          bars.values.back().push_back(count_of(rank, i));
      }
    }
    if (bars.names.empty()) continue;
    if (!std::exchange(any, true)) page.section("Phases");
    page.bars(bars);
  }
}

// --- stops and restarts ---

std::string moment(double seconds) {
  if (!(std::abs(seconds) < 1e11)) return "";
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

std::string whole(const json& attempt, const char* key) {
  const double value = number(attempt, key);
  return std::isfinite(value) ? format("{:.0f}", value) : "";
}

// "n1 (4), n2 (3)": with the ranks of each, where there are several.
std::string hosts_of(const json& attempt) {
  constexpr size_t kMostHosts = 8;
  std::map<std::string, int> hosts;
  for (const auto& host : list(attempt, "hosts")) ++hosts[host.is_string() ? host.get<std::string>() : "?"];
  std::vector<std::string> few;
  for (const auto& [host, ranks] : hosts) {
    if (few.size() < kMostHosts) few.push_back(hosts.size() == 1 ? host : format("{} ({})", host, ranks));
  }
  const auto more = hosts.size() - few.size();
  return base::join(few, ", ") + (more ? format(" and {} more", more) : "");
}

// A newer attempt, or a free lock, shows that an attempt which still says "running" was killed.
std::string end_of(const json& attempt, bool newest, const RunData& run) {
  auto state = text(attempt, "state");
  if (state == "running" && (!newest || !run.status || run.status->state != run_folder::RunState::running))
    state = "ended without a status";
  return run_folder::state_in_words(state, text(attempt, "reason"));
}

// "9.3 s, 20 steps again"
std::string lost_before(const json& attempt) {
  const double seconds = number(attempt, "lost_seconds"), steps = number(attempt, "lost_steps");
  if (whole(attempt, "number") == "1" || !std::isfinite(seconds) || !std::isfinite(steps)) return "";
  const auto time = seconds_text(seconds);
  return steps > 0 ? format("{}, {:.0f} step{} again", time, steps, steps == 1 ? "" : "s") : time;
}

std::string device_of(const json& attempt) {
  const auto& memory = at(attempt, "gpu_memory");
  const double peak = number(memory, "peak"), total = number(memory, "total");
  if (!std::isfinite(peak) || !std::isfinite(total)) return text(attempt, "device");
  return format("{}, at most {:.2f} of {:.0f} GB used", text(attempt, "device"), peak / 1e9, total / 1e9);
}

void add_attempts(Page& page, const Runs& runs) {
  bool any = false;
  for (const auto& run : runs) {
    Table rows = {{"attempt", "began (UTC)", "lost before", "lasted", "steps", "how it ended", "ranks",
                   "hosts", "job", "device", "backend", "program", "libtorch"}};
    const auto& attempts = list(run.facts, "attempts");
    for (size_t i = 0; i < attempts.size(); ++i) {
      const auto& one = attempts[i];
      const double lasted = number(one, "ended") - number(one, "began");
      const auto job = text(one, "job_id");
      rows.push_back({whole(one, "number"), moment(number(one, "began")), lost_before(one),
                      std::isfinite(lasted) ? seconds_text(lasted) : "",
                      whole(one, "from_step") + " → " + whole(one, "step"),
                      end_of(one, i + 1 == attempts.size(), run), whole(one, "world"), hosts_of(one),
                      job.empty() ? "" : text(one, "scheduler") + " " + job, device_of(one),
                      text(one, "backend"), text(one, "program"), text(one, "libtorch")});
    }
    if (rows.size() == 1) continue;
    if (!std::exchange(any, true)) page.section("Stops and restarts");
    name_run(page, runs, run);
    page.table(rows);
  }
}

// --- configs ---

std::string value_in(const RunData& run, const std::string& key) {
  const auto found = std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first);
  return found == run.settings.end() ? "–" : found->second.empty() ? "(empty)" : found->second;
}

void add_differences(Page& page, const Runs& runs) {
  Table rows = {{"key"}};
  std::vector<std::string> keys;
  for (const auto& run : runs) {
    rows[0].push_back(run.name);
    for (const auto& [key, value] : run.settings) {
      if (std::ranges::count(keys, key)) continue;
      keys.push_back(key);
    }
  }
  for (const auto& key : keys) {
    std::vector<std::string> row = {key};
    for (const auto& run : runs) row.push_back(value_in(run, key));
    if (std::adjacent_find(row.begin() + 1, row.end(), std::not_equal_to()) != row.end()) rows.push_back(row);
  }
  rows.size() == 1 ? page.text("Their configs are the same.") : page.table(rows);
}

void add_configs(Page& page, const Runs& runs) {
  if (runs.size() == 1 && runs[0].config.empty()) return;
  page.section("Config");
  if (runs.size() > 1) add_differences(page, runs);
  for (const auto& run : runs) {
    if (!run.config.empty())
      page.add("details", {{"summary", run.name + "/config.yaml"}, {"text", run.config}});
  }
}

void add_troubles(Page& page, const Runs& runs) {
  auto lines = ordered_json::array();
  for (const auto& run : runs) {
    for (const auto& trouble : run.troubles) lines.push_back(run.name + ": " + trouble);
  }
  if (lines.empty()) return;
  page.section("Files that could not be read");
  page.add("list", std::move(lines));
}

// Folders of one name are shown with their whole paths.
void tell_apart(Runs& runs) {
  std::map<std::string, int> seen;
  for (const auto& run : runs) ++seen[run.name];
  for (auto& run : runs) {
    if (seen[run.name] > 1) run.name = run.folder;
  }
}

}  // namespace

std::string report(const std::vector<std::filesystem::path>& folders) {
  Runs runs;
  for (const auto& folder : folders) runs.push_back(read_run(folder));
  tell_apart(runs);
  Page page(runs.size() == 1 ? runs[0].name : format("{} runs", runs.size()));
  for (const auto add :
       {add_result, add_curves, add_evaluation, add_phases, add_attempts, add_configs, add_troubles})
    add(page, runs);
  return page.html();
}

}  // namespace lockstep::report
