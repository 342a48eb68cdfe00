#include "tools/cluster/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/scheduler.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path ? path : "/usr/bin:/bin";
}

// PBS is often not on PATH
std::string pbs_folder() {
  const char* pbs = std::getenv("PBS_EXEC");
  return std::string(pbs && *pbs ? pbs : "/opt/pbs") + "/bin";
}

// Bare where PATH leads to it.
std::string command_word(const std::string& name) {
  const auto path = find_command(name);
  return path.starts_with(pbs_folder()) ? path : name;
}

// also "CANCELLED by 1000"
bool is_final(const std::string& state) {
  static const Words kFinal = {"BOOT_FAIL*", "CANCELLED*", "COMPLETED*", "DEADLINE*",     "FAILED*",
                               "NODE_FAIL*", "PREEMPTED*", "TIMEOUT*",   "OUT_OF_MEMORY*"};
  return base::is_among(state, kFinal);
}

Words for_cluster(const Scheduler& scheduler, Words words) {
  if (!scheduler.cluster.empty()) words.push_back("--clusters=" + scheduler.cluster);
  return words;
}

// sbatch must not see what a job around this process has set for itself; and it gives a variable more weight
// than the script, so it sees only SBATCH_* that neither lockstep's options nor its directives set.
const Words kOfAJob = {
    "SQUEUE_*",     "SLURM_ARRAY_*",  "LOCKSTEP_RESTART",     "SLURM_CPUS_*",        "SLURM_GPUS*",
    "SLURM_JOBID",  "SLURM_JOB_*",    "SLURM_LOCALID",        "SLURM_MEM_PER_*",     "SLURM_NNODES",
    "SLURM_NODEID", "SLURM_NODELIST", "SLURM_NPROCS",         "SLURM_NTASKS*",       "SLURM_PROCID",
    "SLURM_STEP*",  "SLURM_SUBMIT_*", "SLURM_TASKS_PER_NODE", "SLURM_RESTART_COUNT", "SLURM_TRES_PER_TASK"};
const Words kAllowed = {"SBATCH_CONSTRAINT", "SBATCH_EXPORT", "SBATCH_RESERVATION"};

Words variables_to_drop(const Scheduler& scheduler) {
  Words names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const bool is_option = name.starts_with("SBATCH_") && !base::is_among(name, kAllowed);
    const bool is_prefix = name == "PBS_DPREFIX";  // the mark of directives
    if (scheduler.slurm() ? is_option || base::is_among(name, kOfAJob) : is_prefix) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// 7, 7;cluster, 7.server, 7[].server; not a date or a percentage in a banner
bool is_id(const std::string& word) {
  const auto digits = std::min(word.find_first_not_of("0123456789"), word.size());
  return digits > 0 && (digits == word.size() || contains(";.[", word.substr(digits, 1))) &&
         std::ranges::all_of(word, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

// The last line: a site may print a banner before. `sbatch --parsable` prints ID;CLUSTER.
Submitted id_in(const std::string& output) {
  const auto text = base::trimmed(output), word = base::trimmed(text.substr(text.rfind('\n') + 1));
  const auto sign = std::min(word.find(';'), word.size());
  if (!is_id(word)) return {};
  return {word.substr(0, sign), word.substr(std::min(sign + 1, word.size())), {}};
}

}  // namespace

std::string quoted(const std::string& text) {
  const auto is_plain = [](unsigned char byte) {
    return (byte < 0x80 && std::isalnum(byte)) ||
           std::string_view("_./:=,+-@%").find(static_cast<char>(byte)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  // $'...': a scheduler would read directives on a second line, and a shell in another locale other letters
  std::string word = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F)
      word += format("\\{:03o}", static_cast<unsigned>(byte));
    else if (c == '\'' || c == '\\')
      word += {'\\', c};
    else
      word += c;
  }
  return word + "'";
}

std::string quoted(const Words& words) {
  Words all;
  for (const auto& word : words) all.push_back(quoted(word));
  return base::join(all, " ");
}

// ---- commands, ids and logs ----

void check_scheduler(const std::string& name, const std::string& where, const std::string& hint) {
  if (name == "pbs" || name == "slurm") return;
  throw InputError(format("there is no scheduler '{}'", base::printable(name)), where, hint);
}

std::string find_command(const std::string& name) {
  for (const auto& folder : base::split(search_path() + ":" + pbs_folder(), ':')) {
    const auto path = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code none;
    if (fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

std::string guess_scheduler() {
  if (!find_command("sbatch").empty()) return "slurm";  // its qsub, if there is one, calls sbatch
  if (!find_command("qsub").empty()) return "pbs";
  throw InputError("neither sbatch nor qsub is installed here", "PATH",
                   "submit on a login node; --dry-run --scheduler slurm shows the job");
}

std::string task_id(const Scheduler& scheduler, const std::string& array, size_t index) {
  if (scheduler.slurm()) return format("{}_{}", array, index);
  const auto inside = array.find("[]") + 1;
  return array.substr(0, inside) + std::to_string(index) + array.substr(inside);
}

std::string array_of(const std::string& task) {
  const auto open = task.find('['), close = task.find(']');
  if (open == std::string::npos || close == std::string::npos) return task.substr(0, task.find('_'));
  return task.substr(0, open + 1) + task.substr(close);
}

std::string show_command(const Scheduler& scheduler, const std::string& job) {
  return quoted(scheduler.slurm() ? for_cluster(scheduler, {"squeue", "--jobs=" + job})
                                  : Words{"qstat", job});
}

std::string cancel_command(const Scheduler& scheduler, const std::string& job) {
  return quoted(scheduler.slurm() ? for_cluster(scheduler, {"scancel", job}) : Words{"qdel", job});
}

std::string log_of(const Scheduler& scheduler, const std::string& name, const std::string& job) {
  if (scheduler.slurm()) return format("{}-{}.out", name, job);
  const auto number = job.substr(0, job.find_first_not_of("0123456789"));
  const auto open = job.find('['), close = job.find(']');
  const bool is_task = open != std::string::npos && close > open + 1;
  return format("{}.o{}{}", name, number, is_task ? "." + job.substr(open + 1, close - open - 1) : "");
}

// ---- queries ----

RunCommand real_commands(std::chrono::milliseconds limit) {
  return [limit](const Words& words) {
    base::Program program{
        .argv = words, .settings = {"PATH=" + search_path() + ":" + pbs_folder()}, .apart = true};
    program.blocked = {SIGTERM, SIGUSR1, SIGUSR2};  // PBS sends them to all processes of a job
    // a user's formats and filters would change the output, and a step for a query is not one of the job's
    program.without = {"SQUEUE_*",       "SINFO_*",           "SCONTROL_*",    "SLURM_BITSTR_LEN",
                       "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_NTASKS*", "SLURM_NPROCS",
                       "SLURM_TASKS*",   "SLURM_CPUS_PER*",   "SLURM_GPUS*",   "SLURM_MEM*",
                       "SLURM_HINT*"};
    program.argv[0] = command_word(words[0]);
    return base::ask(std::move(program), limit);
  };
}

std::string trouble_of(const std::string& command, const base::Answer& answer) {
  if (answer.end == base::Answer::not_started) return format("{} cannot be started", command);
  if (answer.end == base::Answer::late) return format("{} timed out", command);
  return format("{} exited with {}: {}", command, answer.status,
                base::printable(base::trimmed(answer.errors), 300));
}

StatesAnswer query_jobs(const Scheduler& scheduler, const Words& jobs, const RunCommand& run) {
  if (!scheduler.slurm()) {
    constexpr size_t kMost = 50;  // jobs of a command
    StatesAnswer all;
    for (size_t from = 0; from < jobs.size() && all.trouble.empty(); from += kMost) {
      Words words = {"qstat", "-f"};
      for (size_t i = from; i < std::min(from + kMost, jobs.size()); ++i) words.push_back(jobs[i]);
      const auto answer = run(words);
      auto states = parse_qstat(answer.output + answer.errors, jobs);
      if (states.empty()) all.trouble = trouble_of("qstat", answer);
      all.states.merge(states);
    }
    return all;
  }
  std::set<std::string> arrays;
  for (const auto& job : jobs) arrays.insert(array_of(job));
  const auto answer = run(for_cluster(
      scheduler, {"squeue", "--noheader", "--array", "--states=all",
                  "--jobs=" + base::join({arrays.begin(), arrays.end()}, ","), "--format=%i|%T|%r"}));
  const bool is_forgotten = answer.end == base::Answer::left && contains(answer.errors, "Invalid job id");
  if (!answer.good() && !is_forgotten) return {{}, trouble_of("squeue", answer)};
  return {parse_squeue(is_forgotten ? "" : answer.output, jobs)};
}

JobStates parse_squeue(const std::string& answer, const Words& jobs) {
  JobStates states;
  std::set<std::string> arrays;
  for (const auto& job : jobs) states[job] = {JobState::unknown, "squeue does not list the job"};
  for (const auto& line : base::split(answer, '\n')) {
    const auto parts = base::split(base::trimmed(line), '|');
    if (parts.size() < 2) continue;
    arrays.insert(array_of(parts[0]));
    if (!states.contains(parts[0])) continue;
    const auto& name = parts[1];
    const bool waits = name == "PENDING" || name.starts_with("REQUEUE") || name == "SPECIAL_EXIT";
    const bool has_reason = waits && parts.size() > 2 && parts[2] != "None";
    states[parts[0]] = {
        is_final(name) ? JobState::gone
        : waits        ? JobState::queued
                       : JobState::running,
        base::printable(name) + (has_reason ? format(" ({})", base::printable(parts[2])) : "")};
  }
  // the controller keeps nothing of a task that was canceled before it started
  for (auto& [job, state] : states)
    if (state.kind == JobState::unknown && arrays.contains(array_of(job)))
      state = {JobState::gone, "squeue no longer lists the task"};
  return states;
}

JobStates parse_qstat(const std::string& answer, const Words& jobs) {
  JobStates states;
  for (auto& [job, field] : qstat_blocks(answer)) {
    const auto name = base::printable(field["job_state"]), comment = base::printable(field["comment"]);
    const bool waits = name == "Q" || name == "H" || name == "W" || name == "T";
    const bool is_over = name == "F" || name == "X" || name == "C";
    if (std::ranges::count(jobs, job) > 0)
      states[job] = {
          is_over ? JobState::gone
          : waits ? JobState::queued
                  : JobState::running,
          (is_over ? "PBS state " : "") + name + (waits && !comment.empty() ? format(" ({})", comment) : "")};
  }
  // "qstat: Unknown Job Id 7.server", "qstat: 7.server Job has finished, ..."
  for (const auto& line : base::split(answer, '\n')) {
    if (!contains(line, "Unknown Job Id") && !contains(line, "has finished")) continue;
    for (const auto& word : base::split(line, ' '))
      if (std::ranges::count(jobs, word) > 0) states[word] = {JobState::gone, "qstat does not list the job"};
  }
  return states;
}

std::vector<std::pair<std::string, Fields>> qstat_blocks(const std::string& answer) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& line : base::split(answer, '\n')) {
    const auto colon = line.find(": ");
    if (!line.empty() && line[0] != ' ' && line[0] != '\t')
      texts.emplace_back(base::trimmed(colon == std::string::npos ? line : line.substr(colon + 2)), "");
    else if (!texts.empty())
      texts.back().second += line + "\n";
  }
  std::vector<std::pair<std::string, Fields>> blocks;
  for (const auto& [name, text] : texts) blocks.emplace_back(name, launch::qstat_fields(text));
  return blocks;
}

std::string value(const Fields& fields, const std::string& name, const std::string& otherwise) {
  const auto found = fields.find(name);
  return found == fields.end() || found->second.empty() ? otherwise : found->second;
}

// ---- submission ----

base::Program submit_command(const Scheduler& scheduler, const std::string& path) {
  Words words = {command_word(scheduler.slurm() ? "sbatch" : "qsub")};
  if (scheduler.slurm()) words.emplace_back("--parsable");
  words = for_cluster(scheduler, words);
  words.push_back(path.starts_with('-') ? "./" + path : path);
  return {.argv = words, .without = variables_to_drop(scheduler), .apart = true};
}

std::string shell_line(const base::Program& command) {
  Words words;
  if (!command.without.empty()) words.emplace_back("env");
  for (const auto& name : command.without) words.insert(words.end(), {"-u", name});
  words.insert(words.end(), command.argv.begin(), command.argv.end());
  return quoted(words);
}

Submitted submit(const base::Program& command, std::chrono::milliseconds limit) {
  const auto name = fs::path(command.argv[0]).filename().string();
  Words ignored;
  for (const auto& variable : command.without)
    if (variable.starts_with("SBATCH_") || variable.starts_with("PBS_")) ignored.push_back(variable);
  if (!ignored.empty())
    log::warning(format("ignored for this job: {} (docs/reference/cli.md)", base::join(ignored, ", ")));
  const auto answer = base::ask(command, limit);
  const auto output = base::trimmed(base::trimmed(answer.errors) + "\n" + base::trimmed(answer.output));
  if (answer.end == base::Answer::not_started)
    throw InputError(format("{} is not installed here", name), "PATH",
                     "submit on a login node; --dry-run shows the job");
  if (answer.end == base::Answer::late)
    throw Error(format("{} timed out after {} s, and may have submitted the job: {}", name,
                       std::chrono::ceil<std::chrono::seconds>(limit).count(), output),
                shell_line(command),
                format("look for it with {} before you submit again",
                       name == "sbatch" ? "squeue --user=$USER or sacct" : "qstat -u $USER"));
  if (!answer.good()) {
    for (const char* words : {"Unable to contact", "onnection refused", "annot connect to server",
                              "configuration source", "nknown host"})
      if (contains(output, words))  // as Slurm or PBS says that its controller is down
        throw Error(
            format("{} cannot reach its controller: {}", name, output), shell_line(command),
            std::string("submit on a login node, or try again in a few minutes") +
                (name == "sbatch" && !find_command("qsub").empty() ? ", or add --scheduler pbs" : ""));
    throw Error(
        format("{} rejected the job (status {}): {}", name, answer.status, output), shell_line(command),
        "change the setting that the scheduler reports (--queue, --account, --time, --nodes, the site file)");
  }
  auto submitted = id_in(answer.output);
  if (submitted.id.empty())
    throw Error(format("{} submitted the job but printed no id: {}", name, output), shell_line(command),
                "check the queue");
  submitted.said = base::trimmed(answer.errors);
  return submitted;
}

}  // namespace lockstep::cluster
