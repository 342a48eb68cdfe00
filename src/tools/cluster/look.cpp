#include "tools/cluster/look.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

// To sbatch a variable is more than the script's line.
struct Overruling {
  const char* variable;
  Words options;  // the variable counts where the script has none of these
};
const Overruling kOverruling[] = {{"SBATCH_ACCOUNT", {"--account", "-A"}},
                                  {"SBATCH_CONSTRAINT", {"--constraint", "-C"}},
                                  {"SBATCH_CPUS_PER_GPU", {"--cpus-per-task", "-c"}},
                                  {"SBATCH_GPUS*", {"--gpus-per-node"}},
                                  {"SBATCH_GRES", {"--gres", "--gpus-per-node"}},
                                  {"SBATCH_JOB_NAME", {"--job-name"}},
                                  {"SBATCH_MEM_PER_*", {"--mem"}},
                                  {"SBATCH_NO_REQUEUE", {"--requeue"}},
                                  {"SBATCH_OPEN_MODE", {"--open-mode"}},
                                  {"SBATCH_OUTPUT", {"--output"}},
                                  {"SBATCH_PARTITION", {"--partition", "-p"}},
                                  {"SBATCH_QOS", {"--qos", "-q"}},
                                  {"SBATCH_RESERVATION", {"--reservation"}},
                                  {"SBATCH_SIGNAL", {"--signal"}},
                                  {"SBATCH_TIMELIMIT", {"--time"}}};

// A log in two files, a job that waits for its end, an array that nobody asked for.
const Words kNever = {"SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_WAIT", "SBATCH_ARRAY_INX"};

// sbatch hands its environment on to the job, whose scripts ask squeue, too.
const Words kOfAnotherJob = {
    "SQUEUE_*",        "LOCKSTEP_RESTART", "SLURM_ARRAY_*",        "SLURM_CPUS_*",
    "SLURM_GPUS*",     "SLURM_JOBID",      "SLURM_JOB_*",          "SLURM_LOCALID",
    "SLURM_MEM_PER_*", "SLURM_NNODES",     "SLURM_NODEID",         "SLURM_NODELIST",
    "SLURM_NPROCS",    "SLURM_NTASKS*",    "SLURM_PROCID",         "SLURM_RESTART_COUNT",
    "SLURM_STEP*",     "SLURM_SUBMIT_*",   "SLURM_TASKS_PER_NODE", "SLURM_TRES_PER_TASK"};

const Words kOfQsub = {"PBS_DPREFIX"};  // what begins a directive

// "--mem=4G" -> "--mem", "-C gpu" -> "-C"
Words options_of(const std::string& script) {
  constexpr const char* kMark = "#SBATCH ";
  Words options;
  for (const auto& line : base::split(script, '\n')) {
    if (!line.starts_with(kMark)) continue;
    const auto text = base::trimmed(line.substr(std::char_traits<char>::length(kMark)));
    options.push_back(text.starts_with("--") ? text.substr(0, text.find_first_of("= ")) : text.substr(0, 2));
  }
  return options;
}

Words unheard_by_sbatch(const std::string& script) {
  auto patterns = kNever;
  patterns.insert(patterns.end(), kOfAnotherJob.begin(), kOfAnotherJob.end());
  const auto said = options_of(script);
  for (const auto& row : kOverruling) {
    if (std::ranges::find_first_of(said, row.options) != said.end()) patterns.emplace_back(row.variable);
  }
  return patterns;
}

}  // namespace

const std::vector<std::string>& unheard_by_queries() {
  static const Words patterns = {"SQUEUE_*",         "SACCT_*",        "SINFO_*",          "SCONTROL_*",
                                 "SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"};
  return patterns;
}

std::vector<std::string> unheard_by_submission(const std::string& scheduler, const std::string& script) {
  const auto patterns = scheduler == "slurm" ? unheard_by_sbatch(script) : kOfQsub;
  Words names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    if (base::is_among(name, patterns)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

constexpr auto kAnswersWithin = 15s;
constexpr size_t kMostAsked = 8;  // of PBS at a time, a command a job
constexpr const char* kFinal[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE",     "FAILED",
                                  "NODE_FAIL", "PREEMPTED", "TIMEOUT",   "OUT_OF_MEMORY"};

bool has(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

// "CANCELLED by 1000"
bool is_final(const std::string& state) {
  return std::ranges::any_of(kFinal, [&](const char* one) { return state.starts_with(one); });
}

base::Answer ask(Words words, const Scheduler& scheduler) {
  if (!scheduler.cluster.empty()) words.push_back("--clusters=" + scheduler.cluster);
  words[0] = command_word(words[0]);
  return base::ask({.argv = std::move(words), .without = unheard_by_queries()}, kAnswersWithin);
}

std::string trouble_of(const char* command, const base::Answer& answer) {
  if (answer.end == base::Answer::not_started) return format("{} cannot be started", command);
  if (answer.end == base::Answer::late)
    return format("{} has not answered within {} s", command, std::chrono::seconds(kAnswersWithin).count());
  const auto said = base::trimmed(answer.errors);
  return format("{} left with {}: {}", command, answer.status,
                said.empty() ? "without a word" : base::printable(said, 300));
}

std::string arrays_of(const Words& jobs) {
  Words arrays;
  for (const auto& job : jobs) {
    if (!std::ranges::count(arrays, array_of(job))) arrays.push_back(array_of(job));
  }
  return base::join(arrays, ",");
}

// The controller forgets a job some minutes after its end; accounts remember it, where they are kept.
void ask_sacct(const Scheduler& scheduler, std::map<std::string, Seen>& seen) {
  Words unknown;
  for (const auto& [job, said] : seen) {
    if (said.state == Seen::unknown) unknown.push_back(job);
  }
  if (unknown.empty() || find_command("sacct").empty()) return;
  const auto answer = ask({"sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State",
                           "--jobs=" + base::join(unknown, ",")},
                          scheduler);
  if (!answer.good()) return;
  for (const auto& [job, said] : read_sacct(answer.output)) {
    if (const auto place = seen.find(job); place != seen.end()) place->second = said;
  }
}

Look ask_slurm(const Scheduler& scheduler, const Words& jobs) {
  const auto answer = ask(
      {"squeue", "--noheader", "--array", "--states=all", "--jobs=" + arrays_of(jobs), "--format=%i|%T|%r"},
      scheduler);
  const bool forgotten = answer.end == base::Answer::left && has(answer.errors, "Invalid job id");
  if (!answer.good() && !forgotten) return {{}, trouble_of("squeue", answer)};
  Look look{read_squeue(forgotten ? "" : answer.output, jobs)};
  ask_sacct(scheduler, look.seen);
  return look;
}

// Nothing where it did not answer; a server that keeps a history tells how the job ended.
std::optional<Seen> ask_qstat(const Scheduler& scheduler, const std::string& job, std::string& trouble) {
  const auto answer = ask({"qstat", "-f", job}, scheduler);
  if (answer.good()) return read_qstat(answer.output);
  if (has(answer.errors, "Unknown Job Id")) return Seen{Seen::gone, "unknown to qstat"};
  if (!has(answer.errors, "has finished")) {
    trouble = trouble_of("qstat", answer);
    return std::nullopt;
  }
  const auto history = ask({"qstat", "-x", "-f", job}, scheduler);
  return history.good() ? read_qstat(history.output) : Seen{Seen::gone, "finished"};
}

Look ask_pbs(const Scheduler& scheduler, const Words& jobs) {
  Look look;
  for (size_t i = 0; i < std::min(jobs.size(), kMostAsked); ++i) {
    const auto seen = ask_qstat(scheduler, jobs[i], look.trouble);
    if (!seen) break;  // the next one would wait as long
    look.seen[jobs[i]] = *seen;
  }
  return look;
}

// A field of qstat -f.
std::string qstat_field(const std::string& answer, const std::string& name) {
  for (const auto& line : base::split(answer, '\n')) {
    const auto text = base::trimmed(line);
    if (text.starts_with(name + " = ")) return base::printable(text.substr(name.size() + 3));
  }
  return "";
}

// A controller that knows an array's other tasks knows of this one, too: it keeps nothing of one that was
// cancelled before it began.
void drop_tasks(std::map<std::string, Seen>& seen, const std::set<std::string>& arrays) {
  for (auto& [job, said] : seen) {
    if (said.state == Seen::unknown && arrays.contains(array_of(job)))
      said = {Seen::gone, "that it is in its array no more"};
  }
}

}  // namespace

Look look_at(const Scheduler& scheduler, const std::vector<std::string>& jobs) {
  return scheduler.slurm() ? ask_slurm(scheduler, jobs) : ask_pbs(scheduler, jobs);
}

std::map<std::string, Seen> read_squeue(const std::string& answer, const std::vector<std::string>& jobs) {
  std::map<std::string, Seen> seen;
  std::set<std::string> arrays;
  for (const auto& job : jobs) seen[job] = {Seen::unknown, "unknown to squeue"};
  for (const auto& line : base::split(answer, '\n')) {
    const auto parts = base::split(base::trimmed(line), '|');
    if (parts.size() < 2) continue;
    arrays.insert(array_of(parts[0]));
    if (!seen.contains(parts[0])) continue;
    const auto& state = parts[1];
    const bool waits = state == "PENDING" || state.starts_with("REQUEUE") || state == "SPECIAL_EXIT";
    const bool because = waits && parts.size() > 2 && parts[2] != "None";
    seen[parts[0]] = {is_final(state) ? Seen::gone
                      : waits         ? Seen::queued
                                      : Seen::running,
                      base::printable(state) + (because ? format(" ({})", base::printable(parts[2])) : "")};
  }
  drop_tasks(seen, arrays);
  return seen;
}

std::map<std::string, Seen> read_sacct(const std::string& answer) {
  std::map<std::string, Seen> seen;
  for (const auto& line : base::split(answer, '\n')) {
    const auto parts = base::split(base::trimmed(line), '|');
    if (parts.size() < 2) continue;
    const auto state = base::printable(parts[1]);
    // of a job that the controller has lost, accounts say for ever that it runs
    seen[parts[0]] = is_final(state) ? Seen{Seen::gone, state}
                                     : Seen{Seen::unknown, format("unknown to squeue, {} to sacct", state)};
  }
  return seen;
}

Seen read_qstat(const std::string& answer) {
  const auto state = qstat_field(answer, "job_state"), comment = qstat_field(answer, "comment");
  if (state == "F" || state == "X" || state == "C") {
    const auto status = qstat_field(answer, "Exit_status");
    return {Seen::gone, "finished" + (status.empty() ? "" : " with status " + status)};
  }
  const bool waits = state == "Q" || state == "H" || state == "W" || state == "T";
  return {waits ? Seen::queued : Seen::running,
          state + (waits && !comment.empty() ? format(" ({})", comment) : "")};
}

}  // namespace lockstep::cluster
