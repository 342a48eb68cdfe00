// A run's folder, as far as it can be read.
#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "tools/report/run_list.h"
#include "trainer/config/yaml.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 512 << 20;

std::optional<std::string> read_if_there(RunData& run, const char* file) {
  const auto path = fs::path(run.folder) / file;
  std::error_code failed;
  if (fs::symlink_status(path, failed).type() == fs::file_type::not_found) return std::nullopt;
  try {
    return base::read_small_file(path.string(), kMostBytes, file);
  } catch (const std::exception& error) {
    run.troubles.push_back(describe(error));
    return std::nullopt;
  }
}

void read_facts(RunData& run) {
  const auto text = read_if_there(run, "report.json");
  auto json = text ? base::parse_json(*text) : nlohmann::json::object();
  if (json.is_object())
    run.facts = std::move(json);
  else
    run.troubles.emplace_back("report.json: not a complete JSON object");
}

void add_points(const nlohmann::json& line, std::map<std::string, Curve>& curves) {
  const double step = number(line, "step");
  for (const auto& [key, value] : line.items()) {
    if (key == "step" || key == "epoch" || key == "event" || !(value.is_number() || value.is_null()))
      continue;
    curves[key].x.push_back(step);
    curves[key].y.push_back(number(line, key.c_str()));
  }
}

void read_metrics(RunData& run) {
  const auto text = read_if_there(run, "metrics.jsonl");
  if (!text) return;
  size_t bad = 0;
  for (size_t begin = 0, end = 0; begin < text->size(); begin = end + 1) {
    end = std::min(text->find('\n', begin), text->size());
    const auto written = std::string_view(*text).substr(begin, end - begin);
    const auto line = base::parse_json(written);
    const auto& event = at(line, "event");
    if (event == "step" || event == "epoch") {
      add_points(line, event == "step" ? run.steps : run.epochs);
    } else if (!line.is_object() && !written.empty()) {
      ++bad;
    }
  }
  if (bad > 0)
    run.troubles.push_back(format("metrics.jsonl: {} could not be read", base::counted(bad, "line")));
}

std::string value_of(const config::YamlNode& node) {
  std::string all;
  for (const auto& item : node.items) all += (all.empty() ? "" : ", ") + value_of(*item);
  for (const auto& [key, value] : node.entries)
    all += (all.empty() ? "" : ", ") + key->text + ": " + value_of(*value);
  return node.kind == config::YamlNode::Kind::scalar ? node.text : all;
}

void read_config(RunData& run) {
  const auto text = read_if_there(run, "config.yaml");
  if (!text) return;
  run.config = *text;
  try {
    const auto whole = config::parse_yaml(*text, "config.yaml");
    for (const auto& [section, keys] : whole->entries)
      for (const auto& [key, value] : keys->entries)
        run.settings.emplace_back(section->text + "." + key->text, value_of(*value));
  } catch (const std::exception& error) {
    run.troubles.push_back(describe(error));
  }
}

void check_is_run(const RunData& run) {
  std::error_code failed;
  for (const auto* file : {"config.yaml", "status.json", "metrics.jsonl"})
    if (fs::exists(fs::path(run.folder) / file, failed)) return;
  throw InputError("not a run folder", run.folder,
                   base::did_you_mean_file(run.folder) + "pass the folder of a run, like runs/mnist");
}

}  // namespace

RunData read_run(const fs::path& folder, bool with_facts) {
  RunData run;
  run.folder = folder.string();
  run.name = fs::absolute(folder).lexically_normal().filename().string();
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  check_is_run(run);
  try {
    auto job = run_folder::job_status(folder);
    run.outcome = std::move(job.outcome);
    run.status = std::move(job.status);
  } catch (const std::exception& error) {
    run.outcome = "unknown";
    run.troubles.push_back(describe(error));
  }
  read_config(run);
  read_metrics(run);
  if (with_facts) read_facts(run);
  return run;
}

const nlohmann::json& at(const nlohmann::json& object, const char* key) {
  static const nlohmann::json none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

double number(const nlohmann::json& object, const char* key) {
  const auto& value = at(object, key);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

const nlohmann::json& list(const nlohmann::json& object, const char* key) {
  static const nlohmann::json empty = nlohmann::json::array();
  const auto& value = at(object, key);
  return value.is_array() ? value : empty;
}

}  // namespace lockstep::report
