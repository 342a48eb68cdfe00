#pragma once
// The runs below a folder, side by side: result, metrics, and the config keys in which they differ.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

namespace lockstep::report {

struct RunList {
  std::vector<RunData> runs;         ///< each with a status, in the order of their names
  std::vector<std::string> differs;  ///< config keys, in the config's order; those of its place come last
  /// Folders that are not run folders or cannot be read, and why.
  std::vector<std::pair<std::string, std::string>> passed_over;
};

/// InputError where `folder` is not a folder or cannot be read. A run folder is a list of one.
RunList list_runs(const std::filesystem::path& folder);
/// The same for these folders.
RunList list_runs(const std::vector<std::filesystem::path>& folders);

/// By "name", "state", "epoch", "step", "when", a metric (the best first) or a config key. InputError for
/// another word.
void sort_runs(RunList& list, const std::string& key);

/// What the run has for that config key; empty where it has none.
std::string setting(const RunData& run, const std::string& key);

/// A table no wider than `width` columns; 0 = no limit. A line below it names the columns that did not fit.
/// `columns`: only these beside the run's name, words that sort_runs() takes; InputError for another word.
std::string run_table(const RunList& list, int width, const std::vector<std::string>& columns = {});
/// A row for each run, with every metric and every key in which they differ.
std::string run_csv(const RunList& list);
/// The same for programs, with everything in it.
nlohmann::ordered_json run_json(const RunList& list);

}  // namespace lockstep::report
