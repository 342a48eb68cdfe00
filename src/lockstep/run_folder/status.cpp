#include "lockstep/run_folder/status.h"

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/checkpoint_files.h"
#include "lockstep/base/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/run_folder/lock.h"

namespace lockstep::run_folder {
namespace {

struct StateName {
  RunState state;
  const char* name;
  int exit_status;
};
constexpr std::array<StateName, 5> kStates = {
    {{RunState::running, "running", kRunning},
     {RunState::stopped_early, "stopped early", kStoppedEarly},
     {RunState::done, "done", kDone},
     {RunState::failed, "failed", kFailed},
     {RunState::stopped_on_request, "stopped on request", kStoppedOnRequest}}};

const StateName& row_of(RunState state) {
  return kStates[static_cast<size_t>(state)];
}

RunState state_named(const std::string& name, const std::filesystem::path& path) {
  for (const auto& row : kStates) {
    if (name == row.name) return row.state;
  }
  throw InputError("unknown state '" + name + "'", path.string(), "the file was written by a newer lockstep");
}

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::optional<double> optional_number(const nlohmann::json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? std::optional(json[key].get<double>()) : std::nullopt;
}

}  // namespace

const char* name_of(RunState state) {
  return row_of(state).name;
}

void write_status(const std::filesystem::path& folder, RunStatus status, const std::function<void()>& ready) {
  using namespace std::chrono;
  status.updated = duration<double>(system_clock::now().time_since_epoch()).count();
  const nlohmann::ordered_json json = {{"state", name_of(status.state)},
                                       {"reason", status.reason},
                                       {"step", status.step},
                                       {"epoch", status.epoch},
                                       {"epochs", status.epochs},
                                       {"checkpoint", status.checkpoint},
                                       {"loss", number_or_null(status.loss)},
                                       {"accuracy", number_or_null(status.accuracy)},
                                       {"seconds", status.seconds},
                                       {"attempt", status.attempt},
                                       {"world", status.world},
                                       {"host", status.host},
                                       {"job_id", status.job_id},
                                       {"pid", status.pid},
                                       {"updated", status.updated}};
  // a reason may quote a file's bytes: whatever is not UTF-8 is replaced, never thrown at
  const auto text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  base::write_whole((folder / "status.json").string(),
                    [&](const base::ByteSink& sink) { sink(text.data(), text.size()); }, ready);
}

RunStatus read_status(const std::filesystem::path& folder) {
  const auto path = folder / "status.json";
  if (!std::filesystem::is_directory(folder)) {
    throw InputError("no such run folder", folder.string(), "pass a folder like runs/mnist");
  }
  if (!std::filesystem::exists(path)) {
    throw InputError("this folder holds no status.json", folder.string(),
                     "pass the folder of a run, like runs/mnist");
  }
  try {
    const auto json = nlohmann::json::parse(base::read_text(path));
    RunStatus status;
    status.state = state_named(json.at("state"), path);
    status.reason = json.value("reason", "");
    status.step = json.value("step", int64_t{0});
    status.epoch = json.value("epoch", int64_t{0});
    status.epochs = json.value("epochs", int64_t{0});
    status.checkpoint = json.value("checkpoint", "");
    status.loss = optional_number(json, "loss");
    status.accuracy = optional_number(json, "accuracy");
    status.seconds = json.value("seconds", 0.0);
    status.attempt = json.value("attempt", int64_t{1});
    status.world = json.value("world", 1);
    status.host = json.value("host", "");
    status.job_id = json.value("job_id", "");
    status.pid = json.value("pid", 0);
    status.updated = json.value("updated", 0.0);
    return status;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(std::string("status.json is not what a run writes: ") + error.what(), path.string(),
                     "go on with `lockstep train --resume FOLDER`, which writes it anew");
  }
}

Verdict judge(const std::filesystem::path& folder) {
  const auto status = read_status(folder);
  Verdict verdict{row_of(status.state).name, row_of(status.state).exit_status};
  auto& text = verdict.text;
  if (status.state == RunState::running) {
    if (in_use(folder)) {
      text += format(" on {} (process {})", status.host, status.pid);
    } else {
      text = format("failed: its process {} on {} ended without a word", status.pid, status.host);
      verdict.exit_status = kFailed;
    }
  }
  if (!status.reason.empty()) text += ": " + status.reason;
  text += format("\nstep {}, epoch {} of {}, {:.1f} s, attempt {}", status.step, status.epoch, status.epochs,
                 status.seconds, status.attempt);
  if (status.loss) text += format("\nloss {:.4f}", *status.loss);
  if (status.accuracy) text += format("\naccuracy {:.2f} %", 100 * *status.accuracy);
  // a killed run may have come to one more than it could say
  const auto newest = base::newest_by_name((folder / "checkpoints").string());
  if (!newest.empty()) text += "\ncheckpoint " + newest;
  return verdict;
}

}  // namespace lockstep::run_folder
