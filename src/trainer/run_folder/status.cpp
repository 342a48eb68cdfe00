#include "trainer/run_folder/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "trainer/run_folder/console.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cost, core_seconds, gpu_seconds, queue_seconds, cores, gpus,
                                                until, peak_memory, energy_joules, energy_source)

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

nlohmann::ordered_json json_of(const RunStatus& status) {
  return {{"state", name_of(status.state)},
          {"reason", status.reason},
          {"step", status.step},
          {"epoch", status.epoch},
          {"epochs", status.epochs},
          {"checkpoint", status.checkpoint},
          {"unsaved", status.unsaved},
          {"loss", number_or_null(status.loss)},
          {"accuracy", number_or_null(status.accuracy)},
          {"reward", number_or_null(status.reward)},
          {"seconds", status.seconds},
          {"attempt", status.attempt},
          {"lost_seconds", status.lost.seconds},
          {"lost_steps", status.lost.steps},
          {"cost", nlohmann::json(status.cost)},
          {"world", status.world},
          {"host", status.host},
          {"job_id", status.job_id},
          {"pid", status.pid},
          {"updated", status.updated}};
}

// a reason may quote a file's bytes: whatever is not UTF-8 is replaced, never thrown at
std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Empty where the file does not say it.
std::string process_of(const RunStatus& status) {
  return status.pid > 0 ? format(" {}", status.pid) : "";
}
std::string place_of(const RunStatus& status) {
  return status.host.empty() ? "" : " on " + status.host;
}

void set_died(RunStatus& status) {
  status.state = RunState::failed;
  status.reason = format("its process{}{} exited without reporting a status{}", process_of(status),
                         place_of(status), status.reason.empty() ? "" : ": " + status.reason);
}

// A full disk has no room for a second file, but the blocks of the old one. What is longer than that is
// written first, as it may find no room.
bool overwrite(const std::string& path, std::string text) {
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat before {};
  if (!file || ::fstat(file.number(), &before) != 0 || !S_ISREG(before.st_mode)) return false;
  text.resize(std::max(text.size(), static_cast<size_t>(before.st_size)), ' ');
  const auto more = std::string_view(text).substr(static_cast<size_t>(before.st_size));
  const auto is_written = [&](std::string_view part, off_t at) {
    return ::pwrite(file.number(), part.data(), part.size(), at) == static_cast<ssize_t>(part.size());
  };
  const bool room = is_written(more, before.st_size);
  if (!room && ::ftruncate(file.number(), before.st_size) != 0) return false;
  return room && is_written(text, 0);
}

void check_there(const std::filesystem::path& folder) {
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    throw InputError("no such run folder", folder.string(),
                     base::did_you_mean_file(folder.string()) + "pass a folder like runs/mnist");
  }
  if (std::filesystem::symlink_status(folder / "status.json", failed).type() ==
      std::filesystem::file_type::not_found) {
    throw InputError("this folder holds no status.json", folder.string(),
                     "pass the folder of a run, like runs/mnist");
  }
}

}  // namespace

const char* name_of(RunState state) {
  return row_of(state).name;
}

std::string state_in_words(const std::string& state, const std::string& reason) {
  if (state == name_of(RunState::done) && reason == "epochs") return "finished all epochs";
  return reason.empty() ? state : state + ": " + reason;
}

void write_status(const std::filesystem::path& folder, RunStatus status, const std::function<void()>& ready) {
  status.updated = unix_now();
  charge(status.cost);
  const auto text = text_of(json_of(status));
  const auto path = (folder / "status.json").string();
  try {
    base::write_whole(
        path, [&](const base::ByteSink& sink) { sink(text.data(), text.size()); }, ready);
  } catch (const std::exception&) {
    if (ready) ready();
    if (!overwrite(path, text)) throw;
  }
}

RunStatus read_status(const std::filesystem::path& folder) {
  check_there(folder);
  constexpr size_t kMostBytes = 4 << 20;
  const auto path = (folder / "status.json").string();
  const auto json = base::parse_json(base::read_small_file(path, kMostBytes, "the run's status"));
  const auto number = [&json](const char* key) {
    return json.contains(key) && json[key].is_number() ? std::optional(json[key].get<double>())
                                                       : std::nullopt;
  };
  try {
    RunStatus status;
    status.state = state_named(json.at("state").get<std::string>(), path);
    status.reason = json.value("reason", "");
    status.step = json.value("step", int64_t{0});
    status.epoch = json.value("epoch", int64_t{0});
    status.epochs = json.value("epochs", int64_t{0});
    status.checkpoint = json.value("checkpoint", "");
    status.unsaved = json.value("unsaved", "");
    status.loss = number("loss");
    status.accuracy = number("accuracy");
    status.reward = number("reward");
    status.seconds = json.value("seconds", 0.0);
    status.attempt = json.value("attempt", int64_t{1});
    status.lost = {json.value("lost_seconds", 0.0), json.value("lost_steps", int64_t{0})};
    status.cost = json.value("cost", Cost());
    status.world = json.value("world", 1);
    status.host = json.value("host", "");
    status.job_id = json.value("job_id", "");
    status.pid = json.value("pid", 0);
    status.updated = json.value("updated", 0.0);
    return status;
  } catch (const nlohmann::json::exception& error) {
    throw InputError("status.json is not what a run writes: " + base::what_is_wrong(error), path,
                     "resume with `lockstep train --resume FOLDER`, which writes it again");
  }
}

void begin_attempt(Cost& cost, const std::string& allocation, double cores, double gpus) {
  double began = unix_now(), queued = 0, gpus_of_job = 0;
  std::sscanf(allocation.c_str(), "%lf,%lf,%lf,%lf", &began, &cores, &gpus_of_job, &queued);
  if (cost.until < began) {  // not a restart of ranks in the same job
    cost.until = began;
    cost.queue_seconds += queued;
  }
  cost.cores = cores;
  cost.gpus = std::max(gpus, gpus_of_job);  // a scheduler that binds GPUs to tasks does not count them
}

void charge(Cost& cost) {
  const double now = unix_now(), seconds = std::max(0.0, now - cost.until);
  cost.core_seconds += seconds * cost.cores;
  cost.gpu_seconds += seconds * cost.gpus;
  cost.until = now;
}

std::string in_words(const Cost& cost) {
  constexpr double kHour = 3600, kKilowattHour = 3.6e6;
  auto text = format("{:.3f} core-hours", cost.core_seconds / kHour);
  if (cost.gpu_seconds > 0) text += format(", {:.3f} GPU-hours", cost.gpu_seconds / kHour);
  if (cost.queue_seconds > 0) text += format(", {} in the queue", short_time(cost.queue_seconds));
  if (cost.peak_memory > 0) text += format(", at most {:.2f} GiB a rank", cost.peak_memory / (1 << 30));
  if (cost.energy_source.empty()) return text + ", energy not measured";
  return text + format(", {:.3f} kWh ({})", cost.energy_joules / kKilowattHour, cost.energy_source);
}

Lost lost_since(const RunStatus& before, int64_t step) {
  if (before.state == RunState::done || before.state == RunState::stopped_on_request) return {};
  const double now = unix_now();
  return {before.updated > 0 ? std::max(0.0, now - before.updated) : 0,
          std::max<int64_t>(0, before.step - step)};
}

StatusReport job_status(const std::filesystem::path& folder) {
  auto status = read_status(folder);
  if (status.state == RunState::running && !in_use(folder)) {
    status = read_status(folder);  // it may have ended in between
    if (status.state == RunState::running) set_died(status);
  }
  const std::string name = name_of(status.state);
  StatusReport report{name, row_of(status.state).exit_status, status};
  auto& text = report.text;
  if (status.state == RunState::running) {
    const auto process = process_of(status);
    text = name + place_of(status) + (process.empty() ? "" : format(" (process{})", process));
    if (!status.reason.empty()) text += ": " + status.reason;
  } else {
    text = state_in_words(name, status.reason);
  }
  text += format("\nstep {}, {} of {} epochs, {:.1f} s, attempt {}", status.step, status.epoch, status.epochs,
                 status.seconds, status.attempt);
  if (status.attempt > 1)
    text += format(" ({} between attempts, {} step{} done again)", short_time(status.lost.seconds),
                   status.lost.steps, status.lost.steps == 1 ? "" : "s");
  if (status.cost.core_seconds > 0) text += "\nused " + in_words(status.cost);
  report.outcome = text;
  if (status.loss) text += format("\nloss {:.4f}", *status.loss);
  if (status.accuracy) text += format("\naccuracy {:.2f} %", 100 * *status.accuracy);
  if (status.reward) text += format("\nreward {:.2f}", *status.reward);
  // a killed run may have come to one more than it could say
  report.checkpoint = base::newest_by_name((folder / "checkpoints").string());
  const auto newest = report.checkpoint.empty() ? "" : "\ncheckpoint " + report.checkpoint;
  text += newest;
  report.outcome += newest;
  return report;
}

std::string to_json(const StatusReport& report) {
  auto json = json_of(report.status);
  json["checkpoint"] = report.checkpoint;
  json["exit_status"] = report.exit_status;
  if (report.status.cost.energy_source.empty()) json["cost"]["energy_joules"] = nullptr;
  return text_of(json);
}

}  // namespace lockstep::run_folder
