#include "tools/whoami/ask.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
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

constexpr size_t kMostReasons = 4;  // of one field, where ranks differ

// In the order in which their reasons are printed.
constexpr const char* kFields[] = {"launcher",   "mpi",         "mpi_choice", "rank",   "world",
                                   "local_rank", "local_world", "node_rank",  "nodes",  "scheduler",
                                   "job_id",     "host",        "device",     "threads"};

std::string headline(const Report& report) {
  const Process& first = report.processes.front();
  std::string text = format("{} on {}, launcher {}", base::counted(first.world, "rank"),
                            base::counted(first.nodes, "node"), first.launcher);
  if (first.scheduler != "none")
    text += format(", {} job {}", first.scheduler, base::printable(first.job_id));
  if (!report.ends.empty()) text += ", ends " + report.ends;
  return text + "\n";
}

std::string table(const Report& report) {
  constexpr const char* kRow = "{:>6}  {:>7}  {:>5}  {:<7}  {:>7}  {:>8}  {}\n";
  std::string text = "\n" + format(kRow, "rank", "local", "node", "device", "threads", "pid", "host");
  for (const Process& one : report.processes)
    text += format(kRow, one.rank, format("{}/{}", one.local_rank, one.local_world), one.node_rank,
                   one.device, one.threads, one.pid, base::printable(one.host));
  return text;
}

launch::Grouped reasons_of(const Report& report, const char* field) {
  launch::Grouped groups;
  for (const Process& process : report.processes) {
    if (groups.size() > kMostReasons) break;
    const auto because = process.because.find(field);
    if (because != process.because.end()) launch::add(groups, because->second, process.rank);
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
    for (const auto& warning : process.warnings) launch::add(groups, warning, process.rank);
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

constexpr std::chrono::milliseconds kMeetWithin{10'000};  // without MPI
constexpr std::chrono::seconds kLeave{60};

// A missing device is no error yet: the table is printed first.
Process own_process(const launch::Runtime& runtime, const std::string& wanted,
                    const launch::Environment& environment) {
  const launch::ThreadShare share = launch::share_threads(runtime, environment);
  Process own;
  static_cast<Job&>(own) = runtime.job();
  own.pid = ::getpid();
  own.threads = share.threads;
  own.cpus = launch::own_cpus().units;
  try {
    const launch::DeviceChoice choice =
        launch::choose_device(own, LaunchOptions{.device = wanted}, environment);
    own.device = choice.name;
    own.because["device"] = choice.because;
    if (choice.is_cuda()) own.gpu = launch::identify_gpu(choice.index);
  } catch (const InputError& error) {
    own.because["device"] = own.device_error = error.what();
  }
  own.because["threads"] = share.because;
  own.warnings.insert(own.warnings.end(), share.warnings.begin(), share.warnings.end());
  return own;
}

Report report_of(const std::vector<std::string>& texts, const Job& job,
                 const launch::Environment& environment) {
  Report report;
  for (const auto& text : texts) report.processes.push_back(nlohmann::json::parse(text).get<Process>());
  std::ranges::sort(report.processes, {}, &Process::rank);
  const auto end = job.rank == 0 ? launch::job_deadline(job, environment) : std::nullopt;
  if (end) report.ends = launch::utc_text(*end);
  return report;
}

void refuse_deviceless(const nlohmann::json& process) {
  if (process.is_null()) return;
  const auto one = process.get<Process>();
  throw InputError(one.device_error, format("rank {} of {} on host {}", one.rank, one.world, one.host),
                   "use --device cpu, or request as many GPUs per node as ranks");
}

void refuse_missing(const Report& report) {
  if (report.complete()) return;
  const Process& first = report.processes.front();
  throw Error(format("{} of {} ranks answered", report.processes.size(), first.world), "host " + first.host,
              "start the missing ranks at about the same time, and check that they can reach MASTER_ADDR");
}

}  // namespace

std::string as_text(const Report& report) {
  std::string text = headline(report) + table(report) + reasons(report) + warnings(report);
  if (!base::find_beside("liblockstep_python.so").empty())
    text += "\nto use this backend in Python: init_process_group(\"lockstep\")\n";
  return report.complete() ? text : tagged(text, report.processes.front().rank);
}

std::string as_json(const Report& report) {
  const Process& first = report.processes.front();
  const ordered_json json = {{"schema", 1},
                             {"world", first.world},
                             {"nodes", first.nodes},
                             {"launcher", first.launcher},
                             {"scheduler", first.scheduler},
                             {"job_id", first.job_id},
                             {"ends", report.ends.empty() ? ordered_json() : ordered_json(report.ends)},
                             {"complete", report.complete()},
                             {"ranks", nlohmann::json(report.processes)}};
  // one line if several processes print
  return report.complete() ? base::as_lines(json) : base::as_line(json) + "\n";
}

void run(const std::string& launcher, const std::string& device, bool json) {
  launch::Runtime runtime(launcher, {.leave_timeout = kLeave});
  const launch::Environment environment = launch::current_environment();
  const auto timeout =
      runtime.has_mpi() ? runtime.join_timeout() : std::min(runtime.join_timeout(), kMeetWithin);
  // Without MPI the ranks meet over the network, which may be what is broken: then each prints its own
  // report.
  std::string apart;
  const auto together = [&](const auto& work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (runtime.has_mpi()) throw;
      const std::string what = error.what();
      apart = what.substr(0, what.find('\n'));
    }
  };
  together([&] { comm::join_ranks(runtime, timeout); });
  const bool met = apart.empty();
  Process own = own_process(runtime, device, environment);
  std::optional<Report> report;  // on rank 0, and on each rank where the others could not be asked
  const auto answer = [&](const std::vector<std::string>& texts) {
    report = report_of(texts, runtime.job(), environment);
    const auto deviceless =
        std::ranges::find_if(report->processes, [](const auto& one) { return !one.device_error.empty(); });
    return deviceless == report->processes.end() ? "null" : base::as_line(nlohmann::json(*deviceless));
  };
  std::string deviceless;
  const auto line = base::as_line(nlohmann::json(own));
  if (met) together([&] { deviceless = comm::ask_rank_zero(runtime, line, answer, timeout); });
  if (!apart.empty()) {
    own.warnings.push_back("cannot reach the other ranks, so each prints its own lines: " + apart);
    deviceless = answer({base::as_line(nlohmann::json(own))});
  }
  if (report) output::print(json ? as_json(*report) : as_text(*report));
  refuse_deviceless(nlohmann::json::parse(deviceless));
  if (met) comm::refuse_shared_gpus(runtime, {own.gpu});
  if (report) refuse_missing(*report);
}

}  // namespace lockstep::whoami
