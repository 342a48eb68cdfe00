#pragma once
// The runs below a folder, side by side: the result of each, its metrics, and the config keys in which they
// differ.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

namespace lockstep::report {

struct RunList {
  std::vector<RunData> runs;         ///< each with a status, in the order of their names
  std::vector<std::string> differs;  ///< config keys, in the config's order; those of its place come last
  /// Folders that are there and are no run's, or cannot be read yet: and why.
  std::vector<std::pair<std::string, std::string>> passed_over;
};

/// InputError where `folder` is none, or cannot be looked into. A run's own folder is a list of one.
RunList list_runs(const std::filesystem::path& folder);
/// The same for these folders.
RunList list_runs(const std::vector<std::filesystem::path>& folders);

/// By "name", "state", "epoch", "step", "when", a metric (the best first) or a config key. InputError for
/// another word.
void sort_runs(RunList& list, const std::string& key);

/// InputError where `key`, of that option, is no word that sort_runs() takes.
void check_word(const RunList& list, const std::string& key, const std::string& option);

/// What the run has for that config key; empty where it has none.
std::string setting(const RunData& run, const std::string& key);

/// A metric over a run's epochs. Those of which more is better: accuracy, f1, auc.
struct Course {
  double last, best;
};
/// NaN where the run has none.
Course course_of(const RunData& run, const std::string& metric);
/// What the runs were evaluated by: "train_loss", "eval_loss", "accuracy", ...
std::vector<std::string> metrics_of(const RunList& list);

/// A table no wider than `width` columns; 0 = as wide as it comes. What finds no room is named below it.
/// Where `columns` names some, the run's name and these alone: words that sort_runs() takes; InputError for
/// another.
std::string run_table(const RunList& list, int width, const std::vector<std::string>& columns = {});
/// The same for programs, with everything in it.
nlohmann::ordered_json run_json(const RunList& list);

}  // namespace lockstep::report
