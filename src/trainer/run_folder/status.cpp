#include "trainer/run_folder/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "trainer/run_folder/console.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::run_folder {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

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

RunState state_named(const std::string& name, const fs::path& path) {
  for (const auto& row : kStates)
    if (name == row.name) return row.state;
  throw InputError("unknown state '" + name + "'", path.string(), "the file was written by a newer lockstep");
}

// Every field but the state, in the order of status.json.
template <class Status, class Visit>
void for_each_field(Status& status, const Visit& visit) {
  visit("reason", status.reason);
  visit("step", status.step);
  visit("epoch", status.epoch);
  visit("epochs", status.epochs);
  visit("checkpoint", status.checkpoint);
  visit("unsaved", status.unsaved);
  visit("loss", status.loss);
  visit("accuracy", status.accuracy);
  visit("reward", status.reward);
  visit("seconds", status.seconds);
  visit("attempt", status.attempt);
  visit("lost_seconds", status.lost.seconds);
  visit("lost_steps", status.lost.steps);
  visit("cost", status.cost);
  visit("world", status.world);
  visit("host", status.host);
  visit("job_id", status.job_id);
  visit("pid", status.pid);
  visit("updated", status.updated);
}

nlohmann::ordered_json json_of(const RunStatus& status) {
  nlohmann::ordered_json json = {{"state", name_of(status.state)}};
  for_each_field(status, [&json](const char* key, const auto& field) {
    if constexpr (requires { field.has_value(); })
      json[key] = field ? nlohmann::ordered_json(*field) : nlohmann::ordered_json();
    else
      json[key] = nlohmann::json(field);
  });
  return json;
}

// Empty where the file does not say it.
std::string process_of(const RunStatus& status) {
  return status.pid > 0 ? format(" {}", status.pid) : "";
}
std::string place_of(const RunStatus& status) {
  return status.host.empty() ? "" : " on " + status.host;
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

void check_there(const fs::path& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed))
    throw InputError("no such run folder", folder.string(),
                     base::did_you_mean_file(folder.string()) + "pass a folder like runs/mnist");
  if (fs::symlink_status(folder / "status.json", failed).type() != fs::file_type::not_found) return;
  const bool is_run = fs::exists(folder / "config.yaml", failed);
  throw InputError(
      is_run ? "the run has not started training" : "not a run folder: it has no status.json",
      folder.string(),
      is_run ? "try again in a few seconds, or see the run's log" : "pass a folder like runs/mnist");
}

constexpr auto kLookEvery = 1s;
constexpr auto kPoll = 100ms;
constexpr auto kSilent = 10s;  // from a request's end to the status that says why
constexpr auto kAlive = 2s;    // between two looks at whether the run's process lives
constexpr std::array<const char*, kRequests.size()> kNames = {"stop.request", "checkpoint.request"};

void refuse_dead(const fs::path& folder, RunRequest request) {
  if (in_use(folder) || read_status(folder).state != RunState::running) return;
  std::error_code none;
  fs::remove(request_file(folder, request), none);
  throw Error("the run exited without reporting a status", folder.string(),
              "run lockstep status " + folder.string());
}

// The run's status once the request is done or the run is over.
RunStatus answer_of(const fs::path& folder, RunRequest request, RunStatus before, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool answered = false;  // the file is gone, since `when`
  Clock::time_point when{};
  for (auto looked = Clock::now();; std::this_thread::sleep_for(kPoll)) {
    const bool before_that = std::exchange(answered, !fs::exists(request_file(folder, request)));
    if (answered && !before_that) when = Clock::now();
    const auto status = read_status(folder);
    if (status.state != RunState::running) return status;
    if (status.attempt != before.attempt) {  // which removes what an earlier attempt was asked: ask it again
      before = status;
      answered = false;
      ask(folder, request);
    } else if (request == RunRequest::checkpoint && answered &&
               (status.updated != before.updated || Clock::now() - when > kSilent)) {
      return status;  // a run renews its status first, unless the disk is full
    }
    if (Clock::now() - looked >= kAlive) {
      looked = Clock::now();
      refuse_dead(folder, request);
    }
    if (Clock::now() >= until)
      throw Error(format("not done within {:.0f} s; the request is still pending", seconds), folder.string(),
                  "raise --timeout; the run handles requests at the end of a step");
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

void write_status(const fs::path& folder, RunStatus status, const std::function<void()>& ready) {
  status.updated = unix_now();
  charge(status.cost);
  const auto text = base::as_lines(json_of(status));
  const auto path = (folder / "status.json").string();
  try {
    base::write_whole(
        path, [&](const base::ByteSink& sink) { sink(text.data(), text.size()); }, ready);
  } catch (const std::exception&) {
    if (ready) ready();
    if (!overwrite(path, text)) throw;
  }
}

RunStatus read_status(const fs::path& folder) {
  check_there(folder);
  const auto path = (folder / "status.json").string();
  const auto json = base::parse_json(base::read_small_file(path, size_t{4} << 20, "the run's status"));
  try {
    RunStatus status;
    status.state = state_named(json.at("state").get<std::string>(), path);
    for_each_field(status, [&json](const char* key, auto& field) {
      if constexpr (requires { field.has_value(); }) {
        if (json.contains(key) && json[key].is_number()) field = json[key].template get<double>();
      } else {
        field = json.value(key, field);
      }
    });
    return status;
  } catch (const nlohmann::json::exception& error) {
    throw InputError("status.json is damaged: " +
                         (json.is_discarded() ? "it is not valid JSON" : base::what_is_wrong(error)),
                     path, format("run lockstep train {0} --resume {0} to write it again", folder.string()));
  }
}

void begin_attempt(Cost& cost, const std::string& allocation, double cores, double gpus) {
  std::array<double, 4> job = {unix_now(), cores, 0, 0}, given{};
  const int count =
      std::sscanf(allocation.c_str(), "%lf,%lf,%lf,%lf", &given[0], &given[1], &given[2], &given[3]);
  if (count == 4 && std::ranges::all_of(given, [](double one) { return std::isfinite(one); })) job = given;
  const auto [began, cores_of_job, gpus_of_job, queued] = job;
  if (cost.until < began) {  // not a restart of ranks in the same job
    cost.until = began;
    cost.queue_seconds += queued;
  }
  cost.cores = cores_of_job;
  cost.gpus = std::max(gpus, gpus_of_job);  // a scheduler that binds GPUs to tasks does not count them
}

void charge(Cost& cost) {
  const bool is_job = cost.until == std::floor(cost.until);  // it began at a whole second, as sacct counts
  const double now = is_job ? std::floor(unix_now()) : unix_now(), seconds = std::max(0.0, now - cost.until);
  cost.core_seconds += seconds * cost.cores;
  cost.gpu_seconds += seconds * cost.gpus;
  cost.until = now;
}

std::string in_words(const Cost& cost) {
  constexpr double kHour = 3600, kKilowattHour = 3.6e6;
  const auto used = [](double seconds, const char* unit) {
    return seconds < kHour ? format("{:.1f} {}-seconds", seconds, unit)
                           : format("{:.3f} {}-hours", seconds / kHour, unit);
  };
  auto text = used(cost.core_seconds, "core");
  if (cost.gpu_seconds > 0) text += ", " + used(cost.gpu_seconds, "GPU");
  if (cost.queue_seconds > 0) text += format(", {} in the queue", short_time(cost.queue_seconds));
  if (cost.peak_memory > 0) text += format(", at most {:.2f} GiB per rank", cost.peak_memory / (1 << 30));
  if (cost.energy_source.empty()) return text + ", energy not measured";
  return text + format(", {:.3f} kWh ({})", cost.energy_joules / kKilowattHour, cost.energy_source);
}

RestartCost lost_since(const RunStatus& before, int64_t step) {
  if (before.state == RunState::done || before.state == RunState::stopped_on_request) return {};
  const double now = unix_now();
  return {before.updated > 0 ? std::max(0.0, now - before.updated) : 0,
          std::max<int64_t>(0, before.step - step)};
}

StatusReport job_status(const fs::path& folder) {
  auto status = read_status(folder);
  if (status.state == RunState::running && !in_use(folder)) {
    status = read_status(folder);  // it may have ended in between
    if (status.state == RunState::running)
      status.reason = format("its process{}{} exited without reporting a status{}", process_of(status),
                             place_of(status), status.reason.empty() ? "" : ": " + status.reason);
    if (status.state == RunState::running) status.state = RunState::failed;
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
    text += format(" ({} between attempts, {} repeated)", short_time(status.lost.seconds),
                   base::counted(status.lost.steps, "step"));
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
  return base::as_lines(json);
}

fs::path request_file(const fs::path& folder, RunRequest request) {
  return folder / kNames[static_cast<size_t>(request)];
}

void ask(const fs::path& folder, RunRequest request) {
  const auto file = request_file(folder, request);
  std::error_code failed;
  if (fs::is_directory(fs::symlink_status(file, failed)))
    throw InputError("a folder has the name of a file that this command writes", file.string(), "rename it");
  base::replace_file(file.string(), "");
}

Requests::Requests(fs::path folder) : folder_(std::move(folder)) {
  for (const auto request : kRequests) answer(request);
}

bool Requests::asked(RunRequest request) {
  const auto now = Clock::now();
  if (looked_ == Clock::time_point{} || now - looked_ >= kLookEvery) {
    looked_ = now;
    // opening the folder makes NFS ask its server what is in it
    const base::Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat facts {};
    for (size_t i = 0; i < kNames.size(); ++i)
      asked_[i] = folder && ::fstatat(folder.number(), kNames[i], &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
                  S_ISREG(facts.st_mode);
  }
  return asked_[static_cast<size_t>(request)];
}

void Requests::answer(RunRequest request) {
  asked_[static_cast<size_t>(request)] = false;
  std::error_code none;
  fs::remove(request_file(folder_, request), none);
}

RunStatus status_of_running(const fs::path& folder) {
  auto status = read_status(folder);
  if (status.state == RunState::running && in_use(folder)) return status;
  const bool died = status.state == RunState::running;
  throw InputError(format("the run has ended{}{}", died ? " without a final status" : ": ",
                          died ? "" : name_of(status.state)),
                   folder.string(), "run lockstep status " + folder.string());
}

RunStatus await_answer(const fs::path& folder, RunRequest request, const RunStatus& before, double seconds) {
  auto after = answer_of(folder, request, before, seconds);
  if (after.state != RunState::failed) return after;
  throw Error("the run failed: " + after.reason, folder.string(), "run lockstep status " + folder.string());
}

}  // namespace lockstep::run_folder
