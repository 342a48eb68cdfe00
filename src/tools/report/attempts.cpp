// Stops and restarts, where they ran, and with what.
#include <cmath>
#include <ctime>
#include <map>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/plot/page.h"
#include "tools/plot/ticks.h"
#include "tools/report/parts.h"
#include "trainer/run_folder/status.h"

namespace lockstep::report {
namespace {

constexpr size_t kMostHosts = 8;

std::string moment(double seconds) {
  if (!(std::abs(seconds) < 1e11)) return "";
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

std::string lasted(const nlohmann::json& attempt) {
  const double seconds = number(attempt, "ended") - number(attempt, "began");
  return std::isfinite(seconds) ? plot::short_number(std::round(seconds * 10) / 10, plot::Unit::seconds) : "";
}

std::string whole(const nlohmann::json& attempt, const char* key) {
  const double value = number(attempt, key);
  return std::isfinite(value) ? format("{:.0f}", value) : "";
}

// "n1 (4), n2 (3)": with the ranks of each, where there are several.
std::string hosts_of(const nlohmann::json& attempt) {
  std::map<std::string, int> hosts;
  for (const auto& host : list(attempt, "hosts")) ++hosts[host.is_string() ? host.get<std::string>() : "?"];
  std::vector<std::string> few;
  for (const auto& [host, ranks] : hosts) {
    if (few.size() < kMostHosts) few.push_back(hosts.size() == 1 ? host : format("{} ({})", host, ranks));
  }
  const auto more = hosts.size() - few.size();
  return base::join(few, ", ") + (more ? format(" and {} more", more) : "");
}

// A newer attempt, or a free lock, shows that one which still says "running" was killed.
std::string end_of(const nlohmann::json& attempt, bool newest, const RunData& run) {
  auto state = text(attempt, "state");
  if (state == "running" && (!newest || !run.status || run.status->state != run_folder::RunState::running))
    state = "ended without a word";
  return run_folder::state_in_words(state, text(attempt, "reason"));
}

// "9.3s, 20 steps again"
std::string lost_before(const nlohmann::json& attempt) {
  const double seconds = number(attempt, "lost_seconds"), steps = number(attempt, "lost_steps");
  if (whole(attempt, "number") == "1" || !std::isfinite(seconds) || !std::isfinite(steps)) return "";
  const auto time = plot::short_number(std::round(seconds * 10) / 10, plot::Unit::seconds);
  return steps > 0 ? format("{}, {:.0f} step{} again", time, steps, steps == 1 ? "" : "s") : time;
}

std::string job_of(const nlohmann::json& attempt) {
  const auto scheduler = text(attempt, "scheduler"), id = text(attempt, "job_id");
  return id.empty() ? "" : scheduler + " " + id;
}

std::string device_of(const nlohmann::json& attempt) {
  auto device = text(attempt, "device");
  if (!attempt.contains("gpu_memory") || !attempt["gpu_memory"].is_object()) return device;
  const double peak = number(attempt["gpu_memory"], "peak"), total = number(attempt["gpu_memory"], "total");
  if (!std::isfinite(peak) || !std::isfinite(total)) return device;
  return device + format(", at most {:.2f} of its {:.0f} GB held", peak / 1e9, total / 1e9);
}

std::string table_of(const RunData& run) {
  std::vector<std::vector<std::string>> rows = {{"attempt", "began (UTC)", "lost before", "lasted", "steps",
                                                 "how it ended", "ranks", "hosts", "job", "device", "backend",
                                                 "program", "libtorch"}};
  const auto& attempts = list(run.facts, "attempts");
  for (size_t i = 0; i < attempts.size(); ++i) {
    const auto& one = attempts[i];
    rows.push_back({whole(one, "number"), moment(number(one, "began")), lost_before(one), lasted(one),
                    whole(one, "from_step") + " → " + whole(one, "step"),
                    end_of(one, i + 1 == attempts.size(), run), whole(one, "world"), hosts_of(one),
                    job_of(one), device_of(one), text(one, "backend"), text(one, "program"),
                    text(one, "libtorch")});
  }
  return rows.size() == 1 ? "" : plot::table(rows);
}

}  // namespace

std::string attempts(const Runs& runs) {
  std::string html;
  for (const auto& run : runs) {
    if (const auto table = table_of(run); !table.empty()) html += run_heading(runs, run) + table;
  }
  return html;
}

}  // namespace lockstep::report
