#pragma once
// What a run's folder holds, as far as it can be read: no line, file or number in it is trusted. And the runs
// below a folder, side by side: result, metrics, and the config keys in which they differ.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/run_folder/status.h"

namespace lockstep::report {

/// One curve: "loss", "eval_loss", "lr", ...
struct Curve {
  std::vector<double> x, y;
};

struct RunData {
  std::string name;                                           ///< of the folder
  std::string folder;                                         ///< as it was given
  std::string outcome;                                        ///< the state in words
  std::optional<run_folder::RunStatus> status;                ///< nothing where it could not be read
  std::string config;                                         ///< its text
  std::vector<std::pair<std::string, std::string>> settings;  ///< "optim.lr" and its value, in order
  std::map<std::string, Curve> steps, epochs;                 ///< by what they show, over the step
  nlohmann::json facts;                                       ///< report.json
  std::vector<std::string> troubles;                          ///< what could not be read, for people
};

/// InputError where the folder is not a run folder. `with_facts`: also report.json, which may be large.
RunData read_run(const std::filesystem::path& folder, bool with_facts = false);

// Values of a file that may hold any type, or no value; then the result is null, NaN or empty.
const nlohmann::json& at(const nlohmann::json& object, const char* key);
double number(const nlohmann::json& object, const char* key);
const nlohmann::json& list(const nlohmann::json& object, const char* key);

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
/// The metric's last value over the run's epochs; NaN where it has none.
double last_of(const RunData& run, const std::string& metric);
/// With four digits; "–" for NaN.
std::string metric_text(double value);

/// A table no wider than `width` columns; 0 = no limit. A line below it names the columns that did not fit.
/// `columns`: only these beside the run's name, words that sort_runs() takes; InputError for another word.
std::string run_table(const RunList& list, int width, const std::vector<std::string>& columns = {});
/// A row for each run, with every metric and every key in which they differ.
std::string run_csv(const RunList& list);
/// The same for programs, with everything in it.
nlohmann::ordered_json run_json(const RunList& list);

}  // namespace lockstep::report
