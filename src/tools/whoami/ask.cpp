#include "tools/whoami/ask.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/launch/scheduler.h"

namespace lockstep::whoami {
namespace {

using nlohmann::ordered_json;

std::string text_at(const Process& process, const char* key) {
  return process.at(key).get<std::string>();
}

int rank_of(const Process& process) {
  return process.at("rank").get<int>();
}

constexpr int kSchema = 1;
constexpr size_t kMostReasons = 4;  // of one field, where ranks differ

// In the order in which their reasons are printed.
constexpr const char* kFields[] = {"launcher",   "mpi",         "mpi_choice", "rank",   "world",
                                   "local_rank", "local_world", "node_rank",  "nodes",  "scheduler",
                                   "job_id",     "host",        "device",     "threads"};

std::string headline(const Report& report) {
  const Process& first = report.processes.front();
  std::string text = format("{} on {}, launcher {}", base::counted(first.at("world").get<int>(), "rank"),
                            base::counted(first.at("nodes").get<int>(), "node"), text_at(first, "launcher"));
  if (const auto scheduler = text_at(first, "scheduler"); scheduler != "none")
    text += format(", {} job {}", scheduler, base::printable(text_at(first, "job_id")));
  if (!report.ends.empty()) text += ", ends " + report.ends;
  return text + "\n";
}

std::string table(const Report& report) {
  constexpr const char* kRow = "{:>6}  {:>7}  {:>5}  {:<7}  {:>7}  {:>8}  {}\n";
  std::string text = "\n" + format(kRow, "rank", "local", "node", "device", "threads", "pid", "host");
  for (const Process& process : report.processes) {
    const auto number = [&](const char* key) { return process.at(key).get<long>(); };
    text += format(kRow, number("rank"), format("{}/{}", number("local_rank"), number("local_world")),
                   number("node_rank"), text_at(process, "device"), number("threads"), number("pid"),
                   base::printable(text_at(process, "host")));
  }
  return text;
}

launch::Grouped reasons_of(const Report& report, const char* field) {
  launch::Grouped groups;
  for (const Process& process : report.processes) {
    if (groups.size() > kMostReasons) break;
    const auto& because = process.at("because");
    if (because.contains(field)) launch::add(groups, because[field].get<std::string>(), rank_of(process));
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
    if (groups.size() > kMostReasons) lines.emplace_back(field, "and others; see --json");
  }
  std::string text = "\nwhy\n";
  for (const auto& [fields, reason] : lines)
    text += format("  {:<24}  {}\n", fields, base::printable(reason, 400));
  return text;
}

std::string warnings(const Report& report) {
  launch::Grouped groups;
  for (const Process& process : report.processes)
    for (const auto& warning : process.at("warnings"))
      launch::add(groups, warning.get<std::string>(), rank_of(process));
  if (groups.empty()) return "";
  std::string text = "\nwarnings\n";
  for (const auto& [warning, ranks] : groups)
    text += "  " + launch::with_ranks(base::printable(warning, 400), ranks, report.processes.size()) + "\n";
  return text;
}

std::string tagged(const std::string& text, int rank) {
  std::string result;
  for (const auto& line : base::split(text, '\n')) result += format("[rank {}] {}\n", rank, line);
  return result;
}

constexpr std::string_view kCuda = "cuda:";
constexpr std::chrono::milliseconds kMeetWithin{10'000};  // without MPI

// A missing device is no error yet: the table is printed first.
Process own_process(const launch::Runtime& runtime, const std::string& wanted,
                    const launch::Environment& environment) {
  Job job = runtime.job();
  const launch::ThreadShare share = launch::share_threads(runtime, environment);
  std::string device = "none", device_error;
  try {
    const launch::DeviceChoice choice =
        launch::choose_device(job, LaunchOptions{.device = wanted}, environment);
    device = choice.name;
    job.because["device"] = choice.because;
  } catch (const InputError& error) {
    job.because["device"] = device_error = error.what();
  }
  job.because["threads"] = share.because;
  job.warnings.insert(job.warnings.end(), share.warnings.begin(), share.warnings.end());
  return describe(job, device, device_error, share.threads, launch::own_cpus().units);
}

// Only rank 0 asks the scheduler.
std::string deadline_text(const Job& job, const launch::Environment& environment) {
  const auto end = job.rank == 0 ? launch::job_deadline(job, environment) : std::nullopt;
  return end ? launch::utc_text(*end) : "";
}

Report report_of(const std::vector<std::string>& texts, const Job& job,
                 const launch::Environment& environment) {
  Report report;
  for (const auto& text : texts) report.processes.push_back(Process::parse(text));
  std::ranges::sort(report.processes, {}, rank_of);
  report.ends = deadline_text(job, environment);
  return report;
}

std::string first_line(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

// Over MPI all ranks have come to MPI_Init already.
std::chrono::milliseconds timeout_of(const launch::Runtime& runtime) {
  return runtime.has_mpi() ? runtime.join_timeout() : std::min(runtime.join_timeout(), kMeetWithin);
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
    for (const Process& process : answers.report->processes)
      if (text_at(process, "device_error") != "") return base::as_line(process);
    return std::string("null");
  };
  if (apart.empty()) {
    try {
      answers.deviceless =
          Process::parse(comm::ask_rank_zero(runtime, base::as_line(own), make_report, timeout_of(runtime)));
      return answers;
    } catch (const std::exception& error) {
      if (runtime.has_mpi()) throw;
      apart = first_line(error);
    }
  }
  own["warnings"].push_back("cannot reach the other ranks, so each prints its own lines: " + apart);
  answers.deviceless = Process::parse(make_report({base::as_line(own)}));
  return answers;
}

}  // namespace

std::string as_text(const Report& report) {
  std::string text = headline(report) + table(report) + reasons(report) + warnings(report);
  if (!base::find_beside("liblockstep_python.so").empty())
    text += "\nPython: init_process_group(\"lockstep\")\n";
  return report.complete() ? text : tagged(text, rank_of(report.processes.front()));
}

std::string as_json(const Report& report) {
  ordered_json json = {{"schema", kSchema}};
  for (const char* key : {"world", "nodes", "launcher", "scheduler", "job_id"})
    json[key] = report.processes.front().at(key);
  json["ends"] = report.ends.empty() ? ordered_json() : ordered_json(report.ends);
  json["complete"] = report.complete();
  json["ranks"] = report.processes;
  // one line if several processes print
  return report.complete() ? base::as_lines(json) : base::as_line(json) + "\n";
}

Process describe(const Job& job, const std::string& device, const std::string& device_error, int threads,
                 const std::string& cpus) {
  return {{"rank", job.rank},
          {"world", job.world},
          {"local_rank", job.local_rank},
          {"local_world", job.local_world},
          {"node_rank", job.node_rank},
          {"nodes", job.nodes},
          {"host", job.host},
          {"launcher", job.launcher},
          {"mpi", job.mpi},
          {"scheduler", job.scheduler},
          {"job_id", job.job_id},
          {"pid", ::getpid()},
          {"device", device},
          {"device_error", device_error},
          {"threads", threads},
          {"cpus", cpus},
          {"because", job.because},
          {"warnings", job.warnings}};
}

Answers ask_all(launch::Runtime& runtime, const std::string& device) {
  const launch::Environment environment = launch::current_environment();
  const std::string apart = meet(runtime);
  const Process own = own_process(runtime, device, environment);
  launch::GpuIdentity gpu;
  if (const auto device = text_at(own, "device"); device.starts_with(kCuda))
    gpu = launch::identify_gpu(std::stoi(device.substr(kCuda.size())));
  Answers answers = gather(runtime, own, apart, environment);
  answers.met = apart.empty();
  answers.gpu = gpu;
  return answers;
}

void refuse_missing(launch::Runtime& runtime, const Answers& answers) {
  if (const Process& one = answers.deviceless; !one.is_null())
    throw InputError(
        text_at(one, "device_error"),
        format("rank {} of {} on host {}", rank_of(one), one.at("world").get<int>(), text_at(one, "host")),
        "use --device cpu, or request as many GPUs per node as ranks");
  if (answers.met) comm::refuse_shared_gpus(runtime, {answers.gpu});
  if (!answers.report || answers.report->complete()) return;
  const auto& processes = answers.report->processes;
  throw Error(format("{} of {} ranks answered", processes.size(), processes[0].at("world").get<int>()),
              "host " + text_at(processes[0], "host"),
              "start the missing ranks at about the same time, and check that they can reach MASTER_ADDR");
}

}  // namespace lockstep::whoami
