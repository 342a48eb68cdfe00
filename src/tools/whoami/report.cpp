#include "tools/whoami/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/grouped.h"

namespace lockstep::whoami {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostReasons = 4;  // of one field, where ranks differ

// the order in which reasons are told
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
  std::string text = format("\n{:>6}  {:>7}  {:>5}  {:<7}  {:>7}  {:>8}  {}\n", "rank", "local", "node",
                            "device", "threads", "pid", "host");
  for (const Process& process : report.processes) {
    text += format("{:>6}  {:>7}  {:>5}  {:<7}  {:>7}  {:>8}  {}\n", process.job.rank,
                   format("{}/{}", process.job.local_rank, process.job.local_world), process.job.node_rank,
                   process.device, process.threads, process.pid, base::printable(process.job.host));
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

std::string line(const std::string& fields, const std::string& reason) {
  return format("  {:<24}  {}\n", fields, base::printable(reason, 400));
}

// fields that have one reason in common share a line
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
  for (const auto& [fields, reason] : lines) text += line(fields, reason);
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
  // processes that cannot speak as one print one line each
  return json.dump(report.complete() ? 2 : -1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::whoami
