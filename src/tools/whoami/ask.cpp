#include "tools/whoami/ask.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/launch/scheduler.h"

namespace lockstep::whoami {
namespace {

// A missing device is no error yet: the table is printed first.
void take_device(Process& process, const std::string& wanted, const launch::Environment& environment) {
  try {
    const launch::DeviceChoice choice =
        launch::choose_device(process.job, LaunchOptions{.device = wanted}, environment);
    process.device = choice.name;
    process.job.because["device"] = choice.because;
  } catch (const InputError& error) {
    process.device = "none";
    process.device_error = error.what();
    process.job.because["device"] = error.what();
  }
}

Process own_process(const launch::Runtime& runtime, const std::string& device,
                    const launch::Environment& environment) {
  Process process;
  process.job = runtime.job();
  process.pid = getpid();
  const launch::ThreadShare share = launch::share_threads(runtime, environment);
  take_device(process, device, environment);
  process.threads = share.threads;
  process.cpus = launch::own_cpus().units;
  process.job.because["threads"] = share.because;
  process.job.warnings.insert(process.job.warnings.end(), share.warnings.begin(), share.warnings.end());
  return process;
}

constexpr std::pair<const char*, int Job::*> kNumbers[] = {{"rank", &Job::rank},
                                                           {"world", &Job::world},
                                                           {"local_rank", &Job::local_rank},
                                                           {"local_world", &Job::local_world},
                                                           {"node_rank", &Job::node_rank},
                                                           {"nodes", &Job::nodes}};
constexpr std::pair<const char*, std::string Job::*> kTexts[] = {{"host", &Job::host},
                                                                 {"launcher", &Job::launcher},
                                                                 {"mpi", &Job::mpi},
                                                                 {"scheduler", &Job::scheduler},
                                                                 {"job_id", &Job::job_id}};

nlohmann::ordered_json to_json(const Process& process) {
  nlohmann::ordered_json json;
  for (const auto& [name, field] : kNumbers) json[name] = process.job.*field;
  for (const auto& [name, field] : kTexts) json[name] = process.job.*field;
  json["pid"] = process.pid;
  json["device"] = process.device;
  json["device_error"] = process.device_error;
  json["threads"] = process.threads;
  json["cpus"] = process.cpus;
  json["because"] = process.job.because;
  json["warnings"] = process.job.warnings;
  return json;
}

}  // namespace

std::string pack(const Process& process) {
  return base::as_line(to_json(process));
}

Process unpack(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Process process;
  for (const auto& [name, field] : kNumbers) json.at(name).get_to(process.job.*field);
  for (const auto& [name, field] : kTexts) json.at(name).get_to(process.job.*field);
  json.at("because").get_to(process.job.because);
  json.at("warnings").get_to(process.job.warnings);
  json.at("pid").get_to(process.pid);
  json.at("device").get_to(process.device);
  json.at("device_error").get_to(process.device_error);
  json.at("threads").get_to(process.threads);
  json.at("cpus").get_to(process.cpus);
  return process;
}

namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostReasons = 4;  // of one field, where ranks differ

// In the order in which their reasons are printed.
constexpr const char* kFields[] = {"launcher",   "mpi",         "mpi_choice", "rank",   "world",
                                   "local_rank", "local_world", "node_rank",  "nodes",  "scheduler",
                                   "job_id",     "host",        "device",     "threads"};

std::string headline(const Report& report) {
  const Job& job = report.processes.front().job;
  std::string text = format("{} rank{} on {} node{}, launcher {}", job.world, job.world == 1 ? "" : "s",
                            job.nodes, job.nodes == 1 ? "" : "s", job.launcher);
  if (job.scheduler != "none") text += format(", {} job {}", job.scheduler, base::printable(job.job_id));
  if (!report.ends.empty()) text += ", ends " + report.ends;
  return text + "\n";
}

std::string table(const Report& report) {
  constexpr const char* kRow = "{:>6}  {:>7}  {:>5}  {:<7}  {:>7}  {:>8}  {}\n";
  std::string text = "\n" + format(kRow, "rank", "local", "node", "device", "threads", "pid", "host");
  for (const Process& process : report.processes) {
    const Job& job = process.job;
    text += format(kRow, job.rank, format("{}/{}", job.local_rank, job.local_world), job.node_rank,
                   process.device, process.threads, process.pid, base::printable(job.host));
  }
  return text;
}

launch::Grouped reasons_of(const Report& report, const char* field) {
  launch::Grouped groups;
  for (const Process& process : report.processes) {
    if (groups.size() > kMostReasons) break;
    const auto reason = process.job.because.find(field);
    if (reason != process.job.because.end()) launch::add(groups, reason->second, process.job.rank);
  }
  return groups;
}

// Fields that have one reason in common share a line.
std::string reasons(const Report& report) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const char* field : kFields) {
    const launch::Grouped groups = reasons_of(report, field);
    const bool shared = groups.size() == 1;
    for (size_t i = 0; i < std::min(groups.size(), kMostReasons); ++i) {
      const std::string& reason = groups[i].first;
      if (shared && !lines.empty() && lines.back().second == reason) {
        lines.back().first += ", " + std::string(field);
      } else {
        lines.emplace_back(shared ? field : format("{} of {}", field, launch::ranges(groups[i].second)),
                           reason);
      }
    }
    if (groups.size() > kMostReasons) lines.emplace_back(field, "and others: see --json");
  }
  std::string text = "\nwhy\n";
  for (const auto& [fields, reason] : lines)
    text += format("  {:<24}  {}\n", fields, base::printable(reason, 400));
  return text;
}

std::string warnings(const Report& report) {
  launch::Grouped groups;
  for (const Process& process : report.processes) {
    for (const auto& warning : process.job.warnings) launch::add(groups, warning, process.job.rank);
  }
  if (groups.empty()) return "";
  std::string text = "\nwarnings\n";
  for (const auto& [warning, ranks] : groups) {
    text += "  " + launch::with_ranks(base::printable(warning, 400), ranks, report.processes.size()) + "\n";
  }
  return text;
}

std::string tagged(const std::string& text, int rank) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    result += format("[rank {}] {}\n", rank, text.substr(at, end - at));
    at = end + 1;
  }
  return result;
}

}  // namespace

std::string as_text(const Report& report) {
  const std::string text = headline(report) + table(report) + reasons(report) + warnings(report);
  return report.complete() ? text : tagged(text, report.processes.front().job.rank);
}

std::string as_json(const Report& report) {
  const Job& job = report.processes.front().job;
  ordered_json ranks = ordered_json::array();
  for (const Process& process : report.processes) ranks.push_back(to_json(process));
  const ordered_json json = {{"schema", kSchema},
                             {"world", job.world},
                             {"nodes", job.nodes},
                             {"launcher", job.launcher},
                             {"scheduler", job.scheduler},
                             {"job_id", job.job_id},
                             {"ends", report.ends.empty() ? ordered_json() : ordered_json(report.ends)},
                             {"complete", report.complete()},
                             {"ranks", ranks}};
  // one line if several processes print
  return json.dump(report.complete() ? 2 : -1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

constexpr std::string_view kCuda = "cuda:";
constexpr std::chrono::seconds kMeetWithin{10};  // without MPI

// Only rank 0 asks the scheduler.
std::string deadline_text(const Job& job, const launch::Environment& environment) {
  if (job.rank != 0) return "";
  const auto end = launch::job_deadline(job, environment);
  if (!end) return "";
  const std::time_t when = std::chrono::system_clock::to_time_t(*end);
  std::tm parts{};
  gmtime_r(&when, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Report report_of(const std::vector<std::string>& texts, const Job& job,
                 const launch::Environment& environment) {
  Report report;
  for (const auto& text : texts) report.processes.push_back(unpack(text));
  std::sort(report.processes.begin(), report.processes.end(),
            [](const Process& a, const Process& b) { return a.job.rank < b.job.rank; });
  report.ends = deadline_text(job, environment);
  return report;
}

// The first process without the device that was asked for, packed; "" where all have theirs.
std::string deviceless(const Report& report) {
  for (const Process& process : report.processes) {
    if (!process.device_error.empty()) return pack(process);
  }
  return "";
}

std::string first_line(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

// Over MPI all ranks have come to MPI_Init already.
std::chrono::milliseconds timeout_of(const launch::Runtime& runtime) {
  return runtime.has_mpi() ? runtime.join_timeout() : kMeetWithin;
}

// Why the ranks cannot meet; empty where they can. Without MPI they meet over the network, which may be what
// is broken: then each process prints its own report.
std::string meet(launch::Runtime& runtime) {
  try {
    comm::join_ranks(runtime, timeout_of(runtime));
    return "";
  } catch (const std::exception& error) {
    if (runtime.has_mpi()) throw;
    return first_line(error);
  }
}

Answers gather(const launch::Runtime& runtime, Process own, std::string apart,
               const launch::Environment& environment) {
  Answers answers;
  const auto make_report = [&](const std::vector<std::string>& texts) {
    answers.report = report_of(texts, runtime.job(), environment);
    return deviceless(*answers.report);
  };
  if (apart.empty()) {
    try {
      answers.deviceless = comm::ask_rank_zero(runtime, pack(own), make_report, timeout_of(runtime));
      return answers;
    } catch (const std::exception& error) {
      if (runtime.has_mpi()) throw;
      apart = first_line(error);
    }
  }
  own.job.warnings.push_back("the other ranks could not be asked, each prints its own lines: " + apart);
  answers.deviceless = make_report({pack(own)});
  return answers;
}

void refuse_missing_device(const std::string& packed) {
  if (packed.empty()) return;
  const Process process = unpack(packed);
  throw InputError(process.device_error,
                   format("rank {} of {} on host {}", process.job.rank, process.job.world, process.job.host),
                   "ask the scheduler for as many GPUs a node as ranks, or set launch.device to cpu");
}

void refuse_missing_ranks(const Report& report) {
  if (report.complete()) return;
  const Job& job = report.processes.front().job;
  throw Error(format("{} of {} ranks answered", report.processes.size(), job.world), "host " + job.host,
              "start the ranks that are missing at about the same time, and see that they reach MASTER_ADDR");
}

}  // namespace

Answers ask_all(launch::Runtime& runtime, const std::string& device) {
  const launch::Environment environment = launch::current_environment();
  const std::string apart = meet(runtime);
  const Process own = own_process(runtime, device, environment);
  launch::GpuIdentity gpu;
  if (own.device.starts_with(kCuda)) gpu = launch::identify_gpu(std::stoi(own.device.substr(kCuda.size())));
  Answers answers = gather(runtime, own, apart, environment);
  answers.met = apart.empty();
  answers.gpu = gpu;
  return answers;
}

void refuse_missing(launch::Runtime& runtime, const Answers& answers) {
  refuse_missing_device(answers.deviceless);
  if (answers.met) comm::refuse_shared_gpus(runtime, {answers.gpu});
  if (answers.report) refuse_missing_ranks(*answers.report);
}

}  // namespace lockstep::whoami
