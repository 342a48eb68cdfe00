#include "lockstep/launch/scheduler.h"

#include <algorithm>
#include <ctime>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds kAnswersWithin{5000};
constexpr long kLatest = 253'402'300'799;  // the end of the year 9999

std::optional<long> parse_number(const std::string& text) {
  const auto value = base::parse_number<long>(text);
  return value && *value >= 0 && *value <= kLatest ? value : std::nullopt;
}

// ids become command arguments: refuse what could be an option or a path
bool is_plain_id(const std::string& id) {
  return !id.empty() && id.front() != '-' && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '[' || c == ']';
  });
}

// squeue -j takes an array's own id for all of its tasks, and the last task's job id is the array's
std::string slurm_id(const Job& job, const Environment& environment) {
  const auto array = text_of(environment, "SLURM_ARRAY_JOB_ID");
  const auto task = text_of(environment, "SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? job.job_id : array + "_" + task;
}

std::optional<Time> ask_slurm(const Job& job, const Environment& environment) {
  if (const auto end = parse_epoch(text_of(environment, "SLURM_JOB_END_TIME"))) return end;
  const std::string id = slurm_id(job, environment);
  if (!is_plain_id(id)) return std::nullopt;
  const auto text =
      base::capture({"squeue", "-h", "-j", id, "-o", "%e"}, kAnswersWithin, {"SLURM_TIME_FORMAT=standard"});
  return text ? time_in(base::trimmed(text->substr(0, text->find('\n')))) : std::nullopt;
}

// on compute nodes qstat is often not in PATH
std::optional<Time> ask_pbs(const Job& job) {
  if (!is_plain_id(job.job_id)) return std::nullopt;
  for (const char* program : {"qstat", "/opt/pbs/bin/qstat"}) {
    const auto text = base::capture({program, "-f", job.job_id}, kAnswersWithin);
    if (!text) continue;
    if (const auto end = parse_qstat(*text)) return end;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Time> parse_epoch(const std::string& text) {
  const auto value = parse_number(text);
  return value && *value > 0 ? std::optional(Time(seconds(*value))) : std::nullopt;
}

std::optional<Time> time_in(const std::string& text) {
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%a %b %d %H:%M:%S %Y"}) {
    std::tm parts{};
    const char* end = strptime(text.c_str(), form, &parts);
    if (!end || *end != '\0') continue;
    parts.tm_isdst = -1;
    if (const time_t when = mktime(&parts); when != -1) return std::chrono::system_clock::from_time_t(when);
  }
  return std::nullopt;
}

std::string utc_text(Time time) {
  const std::time_t when = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  char text[32] = {};
  if (::gmtime_r(&when, &parts)) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

seconds seconds_in(const std::string& time) {
  auto text = time;
  const bool has_days = text.find('-') != std::string::npos;
  std::ranges::replace(text, '-', ':');
  const auto parts = base::split(text, ':');
  long total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto part = parse_number(parts[i]);
    if (!part || total > kLatest / 60) return seconds(0);
    total = total * (i == 1 && has_days ? 24 : 60) + *part;
  }
  return seconds(parts.size() <= (has_days ? 4 : 3) ? total : 0);
}

std::map<std::string, std::string> qstat_fields(const std::string& answer) {
  std::map<std::string, std::string> fields;
  std::string* last = nullptr;
  for (const auto& line : base::split(answer, '\n')) {
    const auto sign = line.find(" = ");
    if (last && line.starts_with("\t"))
      *last += line.substr(1);
    else if (line.starts_with("    ") && sign != std::string::npos)
      last = &(fields[base::trimmed(line.substr(0, sign))] = line.substr(sign + 3));
  }
  return fields;
}

std::optional<Time> parse_qstat(const std::string& text) {
  const auto fields = qstat_fields(text);
  const auto walltime = seconds_in(text_of(fields, "Resource_List.walltime"));
  const auto start = time_in(text_of(fields, fields.contains("stime") ? "stime" : "start_time"));
  return start && walltime > seconds(0) ? std::optional(*start + walltime) : std::nullopt;
}

std::optional<Time> usable_job_end(std::optional<Time> end, std::chrono::milliseconds margin, Time now) {
  if (!end || *end <= now || *end - margin > now) return end;
  const auto left = *end - now;
  log::warning(
      format("the job ends in {:.0f} s, less than checkpoint.before_deadline ({} s), so the run will stop in "
             "{:.0f} s",
             std::chrono::duration<double>(left).count(), margin.count() / 1000.0,
             std::chrono::duration<double>(left / 2).count()));
  return now + left / 2 + margin;
}

std::optional<Time> job_deadline(const Job& job, const Environment& environment) {
  if (job.scheduler == "slurm") return ask_slurm(job, environment);
  return job.scheduler == "pbs" || job.scheduler == "torque" ? ask_pbs(job) : std::nullopt;
}

JobEnd::JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
               std::chrono::milliseconds wait)
    : job_(job), environment_(environment), margin_(margin) {
  ask();
  if (end_ || job_.scheduler == "none") return;
  asks_again_ = std::jthread([this, wait](const std::stop_token& stop) mutable {
    const auto is_known = [this] { return end_.has_value(); };
    for (std::unique_lock lock(mutex_);
         !stopped_.wait_for(lock, stop, wait, is_known) && !stop.stop_requested(); wait *= 2) {
      lock.unlock();
      ask();
      lock.lock();
    }
  });
}

std::optional<Time> JobEnd::known() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

void JobEnd::ask() {
  const auto end =
      usable_job_end(job_deadline(job_, environment_), margin_, std::chrono::system_clock::now());
  const std::lock_guard lock(mutex_);
  end_ = end;
}

}  // namespace lockstep::launch
