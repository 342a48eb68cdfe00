#pragma once
// What a run's folder holds, as far as it can be read. No line, file or number in it is trusted.

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
std::string text(const nlohmann::json& object, const char* key);
const nlohmann::json& list(const nlohmann::json& object, const char* key);

}  // namespace lockstep::report
