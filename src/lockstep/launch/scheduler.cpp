#include "lockstep/launch/scheduler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <sstream>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kLongestHost = 255;  // RFC 1123

std::string excerpt(const std::string& text) {
  std::string result = text.substr(0, 60);
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > 60 ? result + "..." : result;
}

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
}

void check_host(const std::string& host, const std::string& list) {
  if (host.empty() || host.size() > kLongestHost || host.front() == '-' ||
      !std::all_of(host.begin(), host.end(), is_host_character)) {
    throw InputError(format("'{}' is no host name", excerpt(host)), format("node list '{}'", excerpt(list)),
                     "give one host name a line");
  }
}

}  // namespace

std::vector<std::string> parse_node_file(const std::string& text) {
  std::vector<std::string> hosts;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty()) continue;
    check_host(line, text);
    if (hosts.size() == kMostHosts)
      throw InputError(format("a node file of more than {} lines", kMostHosts),
                       format("node list '{}'", excerpt(text)), "give one host name a line");
    hosts.push_back(line);
  }
  return hosts;
}

std::vector<int> parse_task_counts(const std::string& text) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(format("malformed task counts: {}", what), format("'{}'", excerpt(text)),
                     "they look like 2(x2),1: tasks on each node");
  };
  const auto number = [&](const std::string& digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1) {
      refuse(format("'{}' is not a count", excerpt(digits)));
    }
    return value;
  };
  std::vector<int> counts;
  std::stringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    int repeat = 1;
    if (const auto open = part.find("(x"); open != std::string::npos) {
      if (part.back() != ')') refuse("'(' without ')'");
      repeat = number(part.substr(open + 2, part.size() - open - 3));
      part.resize(open);
    }
    if (counts.size() + static_cast<size_t>(repeat) > kMostHosts)
      refuse(format("more than {} nodes", kMostHosts));
    counts.insert(counts.end(), static_cast<size_t>(repeat), number(part));
  }
  return counts;
}

std::vector<std::string> unique_hosts(const std::vector<std::string>& hosts) {
  std::unordered_set<std::string> seen;
  std::vector<std::string> result;
  for (const auto& host : hosts) {
    if (seen.insert(host).second) result.push_back(host);
  }
  return result;
}

bool same_host(const std::string& a, const std::string& b) {
  const auto is_address = [](const std::string& text) {
    return text.find(':') != std::string::npos || text.find_first_not_of("0123456789.") == std::string::npos;
  };
  if (is_address(a) || is_address(b)) return a == b;
  return a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds kAnswersWithin{5000};
constexpr long kLatest = 253'402'300'799;  // the end of the year 9999

std::optional<long> parse_number(const std::string& text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 && value <= kLatest ? std::optional(value) : std::nullopt;
}

// local time in the given strptime form, whole text
std::optional<Time> parse_local(const std::string& text, const char* form) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), form, &parts);
  if (!end || *end != '\0') return std::nullopt;
  parts.tm_isdst = -1;
  const time_t when = mktime(&parts);
  return when == -1 ? std::nullopt : std::optional(std::chrono::system_clock::from_time_t(when));
}

// "01:30:00", "1:30", "5400", days as hours beyond 24
std::optional<seconds> parse_walltime(const std::string& text) {
  long total = 0;
  std::stringstream parts(text);
  int count = 0;
  for (std::string part; std::getline(parts, part, ':'); ++count) {
    const auto value = parse_number(part);
    if (!value || total > kLatest / 60) return std::nullopt;
    total = total * 60 + *value;
  }
  return count >= 1 && count <= 3 && total <= kLatest ? std::optional(seconds(total)) : std::nullopt;
}

// the value after "name = " in qstat -f, whose long lines go on after "\n\t"
std::string attribute(const std::string& text, const std::string& name) {
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string clean = base::trimmed(line);
    if (clean.starts_with(name + " = ")) return base::trimmed(clean.substr(name.size() + 3));
  }
  return "";
}

// ids go into argument lists: nothing that could be an option or a path
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
  const std::vector<std::string> standard = {"SLURM_TIME_FORMAT=standard"};
  if (const auto text = base::capture({"squeue", "-h", "-j", id, "-o", "%e"}, kAnswersWithin, standard)) {
    if (const auto end = parse_slurm_time(*text)) return end;
  }
  const auto text = base::capture({"scontrol", "show", "job", id}, kAnswersWithin, standard);
  return text ? parse_scontrol(*text) : std::nullopt;
}

// on compute nodes qstat is often out of PATH
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

std::optional<Time> parse_slurm_time(const std::string& text) {
  const std::string line = base::trimmed(text);
  return parse_local(base::trimmed(line.substr(0, line.find('\n'))), "%Y-%m-%dT%H:%M:%S");
}

std::optional<Time> parse_scontrol(const std::string& text) {
  std::stringstream words(text);
  for (std::string word; words >> word;) {
    if (word.starts_with("EndTime=")) return parse_slurm_time(word.substr(8));
  }
  return std::nullopt;
}

std::optional<Time> parse_qstat(const std::string& text) {
  const auto walltime = parse_walltime(attribute(text, "Resource_List.walltime"));
  if (!walltime) return std::nullopt;
  for (const char* name : {"stime", "start_time"}) {
    if (const auto start = parse_local(attribute(text, name), "%a %b %d %H:%M:%S %Y"))
      return *start + *walltime;
  }
  return std::nullopt;
}

std::optional<Time> end_to_leave_before(std::optional<Time> end, std::chrono::milliseconds margin, Time now) {
  if (!end || *end <= now || *end - margin > now) return end;
  const auto left = *end - now;
  log::warning(
      format("the job ends in {:.0f} s, and checkpoint.before_deadline is {} s: it stops with a checkpoint "
             "halfway",
             std::chrono::duration<double>(left).count(), margin.count() / 1000.0));
  return now + left / 2 + margin;
}

bool has_scheduler(const Job& job) {
  return job.scheduler == "slurm" || job.scheduler == "pbs" || job.scheduler == "torque";
}

std::optional<Time> job_deadline(const Job& job, const Environment& environment) {
  if (!has_scheduler(job)) return std::nullopt;
  return job.scheduler == "slurm" ? ask_slurm(job, environment) : ask_pbs(job);
}

JobEnd::JobEnd(const Job& job, const Environment& environment, std::chrono::milliseconds margin,
               std::chrono::milliseconds wait)
    : job_(job), environment_(environment), margin_(margin) {
  ask();
  if (end_ || !has_scheduler(job_)) return;
  asks_again_ = std::thread([this, wait]() mutable {
    std::unique_lock lock(mutex_);
    for (; !end_ && !leaves_.wait_for(lock, wait, [this] { return left_; }); wait *= 2) {
      lock.unlock();
      ask();
      lock.lock();
    }
  });
}

JobEnd::~JobEnd() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  leaves_.notify_all();
  if (asks_again_.joinable()) asks_again_.join();
}

std::optional<Time> JobEnd::known() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

void JobEnd::ask() {
  const auto end =
      end_to_leave_before(job_deadline(job_, environment_), margin_, std::chrono::system_clock::now());
  const std::lock_guard lock(mutex_);
  end_ = end;
}

namespace {

// Torque sets PBS_JOBID too, so it is asked first by what it alone sets; Flux may run inside any of them.
constexpr std::array<SchedulerRow, 4> kSchedulers = {
    {{"slurm", "SLURM_JOB_ID"}, {"pbs", "PBS_JOBID"}, {"lsf", "LSB_JOBID"}, {"flux", "FLUX_JOB_ID"}}};
constexpr SchedulerRow kTorque = {"torque", "PBS_JOBID"};

bool is_torque(const Environment& environment) {
  return is_set(environment, "PBS_NUM_PPN") || is_set(environment, "PBS_VNODENUM") ||
         is_set(environment, "PBS_NP");
}

constexpr const char* kAlone = "; to run alone on purpose: --launcher none";

Phantom started_alone(const std::string& what, const std::string& how) {
  return {format("this process was started alone (rank 0 of 1), but {}", what), how + kAlone};
}

int slurm_tasks(const Environment& environment) {
  const int nodes = count_of(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  if (const auto tasks = count_of(environment, "SLURM_NTASKS")) return std::max(*tasks, nodes);
  return nodes;
}

Phantom slurm_phantom(const Environment& environment) {
  const int tasks = slurm_tasks(environment);
  if (tasks == 1) return {};
  const char* variable = is_set(environment, "SLURM_NTASKS") ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
  return started_alone(format("the Slurm job was given {} tasks ({})", tasks, quote(environment, variable)),
                       "start the ranks with srun or mpirun");
}

// One line a rank under PBS; but Torque's lines are cores, and so are Gadi's where they equal PBS_NCPUS.
bool lines_are_cores(const Environment& environment, size_t lines) {
  return is_torque(environment) || text_of(environment, "PBS_NCPUS") == std::to_string(lines);
}

Phantom pbs_phantom(const Environment& environment, const Surroundings& surroundings,
                    std::vector<std::string>& warnings) {
  const std::string how = "start the ranks with mpirun or mpiexec";
  if (number_of(environment, "PBS_NODENUM").value_or(0) > 0) {
    return started_alone(
        format("it runs on another host of a PBS job ({})", quote(environment, "PBS_NODENUM")), how);
  }
  // the job's script is task 1; others are pbsdsh's or pbs_tmrsh's
  if (number_of(environment, "PBS_TASKNUM").value_or(1) > 1 ||
      number_of(environment, "PBS_VNODENUM").value_or(0) > 0) {
    return started_alone(format("it is a further task of a PBS job ({})", quote(environment, "PBS_TASKNUM")),
                         how);
  }
  if (!surroundings.node_file || surroundings.node_file->empty()) {
    if (!text_of(environment, "PBS_NODEFILE").empty())
      warnings.push_back(format("{} cannot be read or is empty: taken for a job of one process",
                                quote(environment, "PBS_NODEFILE")));
    return {};
  }
  const auto lines = parse_node_file(*surroundings.node_file);
  const size_t hosts = unique_hosts(lines).size();
  const std::string what =
      format("PBS_NODEFILE has {} lines for {} host{}", lines.size(), hosts, hosts == 1 ? "" : "s");
  if (hosts > 1 || (lines.size() > 1 && !lines_are_cores(environment, lines.size())))
    return started_alone(what, how);
  if (lines.size() > 1) warnings.push_back(what + "; taken for cores, and this process for the only rank");
  return {};
}

Phantom lsf_phantom(const Environment& environment, std::vector<std::string>& warnings) {
  const int slots = count_of(environment, "LSB_DJOB_NUMPROC").value_or(1);
  if (slots > 1) {
    warnings.push_back(
        format("the LSF job has {} slots and this process was started alone; jsrun starts ranks", slots));
  }
  return {};
}

// Open MPI 5 under srun without PMIx: every task is told "0 of 1", silently (ompi#13523).
Phantom step_phantom(const Environment& environment) {
  const int tasks = count_of(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks == 1 || is_set(environment, "PRTE_LAUNCHED") || in_interactive_slurm_step(environment)) return {};
  return {
      format(
          "MPI says rank 0 of 1, but this Slurm step has {} tasks ({}): {} processes would each train alone",
          tasks, quote(environment, "SLURM_STEP_NUM_TASKS"), tasks),
      "start with srun --mpi=pmix (srun --mpi=list shows what there is) or mpirun, or say --launcher slurm"};
}

}  // namespace

const SchedulerRow* find_scheduler(const Environment& environment) {
  for (const auto& row : kSchedulers) {
    if (!is_set(environment, row.job_id)) continue;
    return row.job_id == std::string("PBS_JOBID") && is_torque(environment) ? &kTorque : &row;
  }
  return nullptr;
}

Phantom find_phantom(const Environment& environment, const Launcher* launcher, bool mpi_spoke,
                     const Surroundings& surroundings, std::vector<std::string>& warnings) {
  // a launcher that counts its ranks itself meant one
  if (launcher && launcher->world && is_set(environment, launcher->world)) return {};
  if (mpi_spoke) {
    if (auto phantom = step_phantom(environment); !phantom.what.empty()) return phantom;
    if (launcher) return {};
  }
  const auto* scheduler = find_scheduler(environment);
  if (!scheduler) return {};
  const std::string name = scheduler->name;
  if (name == "slurm") return slurm_phantom(environment);
  if (name == "pbs" || name == "torque") return pbs_phantom(environment, surroundings, warnings);
  if (name == "lsf") return lsf_phantom(environment, warnings);
  return {};
}

namespace {

// A wrapper that translates one launcher's word for another agrees with it; others around it (the step of
// mpirun's daemons) need not.
bool is_translated(const Environment& environment, const Launcher& launcher) {
  return std::any_of(launchers().begin(), launchers().end(), [&](const Launcher& row) {
    return row.rank != std::string(launcher.rank) && row.world && is_set(environment, row.rank) &&
           number_of(environment, row.rank) == number_of(environment, launcher.rank) &&
           count_of(environment, row.world) == count_of(environment, launcher.world);
  });
}

}  // namespace

Phantom find_leftover(const Environment& environment, const Launcher& launcher) {
  if (launcher.name != std::string("torchrun") || is_set(environment, "TORCHELASTIC_RUN_ID")) return {};
  const int own_world = count_of(environment, launcher.world).value_or(1);
  if (own_world > 1 && is_translated(environment, launcher)) return {};
  for (const auto& row : launchers()) {
    const bool step = row.announced && !in_interactive_slurm_step(environment);
    if ((row.mpi != UsesMpi::always && !step) || !row.world) continue;
    const int world = count_of(environment, row.world).value_or(1);
    if (world == 1) continue;
    const auto hint =
        format("unset RANK and WORLD_SIZE, which something left behind, or say --launcher {}", row.name);
    if (own_world == 1)
      return {format("{} says that this process is the only one, but {}: {} would each train alone",
                     quote(environment, launcher.world), quote(environment, row.world), world),
              hint + kAlone};
    // of as many ranks, but another one: several would take the same place
    if (own_world == world && is_set(environment, row.rank))
      return {format("{} says which of {} ranks this is, but {} says otherwise: several would be one rank",
                     quote(environment, launcher.rank), world, quote(environment, row.rank)),
              hint + "; --launcher torchrun overrides this"};
  }
  return {};
}

}  // namespace lockstep::launch
