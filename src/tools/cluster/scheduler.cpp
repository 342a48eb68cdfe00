#include "tools/cluster/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// ---- words of a shell ----

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7F;
}

bool is_plain(unsigned char byte) {
  return (byte < 0x80 && std::isalnum(byte)) ||
         std::string_view("_./:=,+-@%").find(static_cast<char>(byte)) != std::string_view::npos;
}

// $'...': a line feed would else begin a line of the script, which a scheduler reads too
std::string with_escapes(const std::string& text) {
  const bool letters = !base::invalid_utf8(text);
  std::string word = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(byte) || (byte >= 0x80 && !letters))
      word += format("\\{:03o}", static_cast<unsigned>(byte));
    else if (c == '\'' || c == '\\')
      word += {'\\', c};
    else
      word += c;
  }
  return word + "'";
}

}  // namespace

std::string quoted(const std::string& text) {
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  // What is no UTF-8 may begin a letter with the byte behind it, in a job's locale: a quote would be none.
  const auto is_special = [](unsigned char byte) { return is_control(byte) || byte == '\''; };
  if (std::ranges::any_of(text, is_special) || base::invalid_utf8(text)) return with_escapes(text);
  return "'" + text + "'";
}

std::string quoted(const Words& words) {
  Words all;
  for (const auto& word : words) all.push_back(quoted(word));
  return base::join(all, " ");
}

// ---- commands, and how each scheduler names things ----

namespace {

std::string find_in(const Words& folders, const std::string& name) {
  for (const auto& folder : folders) {
    const auto path = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code none;
    if (fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path ? path : "/usr/bin:/bin";
}

// PBS is often off the PATH
std::string pbs_folder() {
  const char* pbs = std::getenv("PBS_EXEC");
  return std::string(pbs && *pbs ? pbs : "/opt/pbs") + "/bin";
}

// The command as it is called: its bare name where PATH leads to it, else its path.
std::string command_word(const std::string& name) {
  if (!find_in(base::split(search_path(), ':'), name).empty()) return name;
  const auto found = find_command(name);
  return found.empty() ? name : found;
}

// slurm-wlm-torque's qsub: it hands what it gets to the sbatch beside it
bool wraps_sbatch(const std::string& qsub) {
  std::string text(20'000, '\0');
  std::ifstream(qsub).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text.starts_with("#!") && text.find("/sbatch\"") != std::string::npos;
}

std::string of_cluster(const Scheduler& scheduler) {
  return scheduler.cluster.empty() ? "" : "--clusters=" + quoted(scheduler.cluster) + " ";
}

}  // namespace

void check_scheduler(const std::string& name, const std::string& where, const std::string& hint) {
  if (name == "pbs" || name == "slurm") return;
  throw InputError(format("there is no scheduler '{}'", base::printable(name)), where, hint);
}

std::string find_command(const std::string& name) {
  return find_in(base::split(search_path() + ":" + pbs_folder(), ':'), name);
}

std::string guess_scheduler() {
  const auto qsub = find_command("qsub");
  const bool slurm = !find_command("sbatch").empty(), pbs = !qsub.empty() && !(slurm && wraps_sbatch(qsub));
  if (slurm != pbs) return slurm ? "slurm" : "pbs";
  if (slurm)
    throw InputError("both sbatch and qsub are here: which scheduler is meant?", "PATH",
                     "add --scheduler slurm or --scheduler pbs, or a --site");
  throw InputError("there is neither sbatch nor qsub here", "PATH",
                   "submit on a login node of the cluster; --dry-run --scheduler slurm shows the job");
}

std::string task_id(const std::string& scheduler, const std::string& array, size_t index) {
  if (scheduler == "slurm") return format("{}_{}", array, index);
  const auto bracket = array.find("[]");
  if (bracket == std::string::npos) return array;
  return array.substr(0, bracket + 1) + std::to_string(index) + array.substr(bracket + 1);
}

std::string array_of(const std::string& task) {
  const auto open = task.find('['), close = task.find(']');
  if (open == std::string::npos || close == std::string::npos) return task.substr(0, task.find('_'));
  return task.substr(0, open + 1) + task.substr(close);
}

std::string how_to_look(const Scheduler& scheduler, const std::string& job) {
  return scheduler.slurm() ? "squeue " + of_cluster(scheduler) + "--jobs=" + job : "qstat " + quoted(job);
}

std::string how_to_cancel(const Scheduler& scheduler, const std::string& job) {
  return (scheduler.slurm() ? "scancel " + of_cluster(scheduler) : "qdel ") + quoted(job);
}

std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job) {
  if (scheduler == "slurm") return format("{}-{}.out", name, job);
  const auto number = job.substr(0, job.find_first_not_of("0123456789"));
  const auto bracket = job.find('[');
  const auto index =
      bracket == std::string::npos ? "" : "." + job.substr(bracket + 1, job.find(']') - bracket - 1);
  return format("{}.o{}{}", name, number, index);
}

// ---- questions ----

RunCommand real_commands(std::chrono::milliseconds limit) {
  return [limit](const Words& words) {
    base::Program program{
        .argv = words, .settings = {"PATH=" + search_path() + ":" + pbs_folder()}, .apart = true};
    // a format, a filter or an order of the user's would change what the answers mean, and a step that we
    // start in a job is not one of its ranks
    program.without = {"SQUEUE_*",         "SACCT_*",        "SINFO_*",           "SCONTROL_*",
                       "SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_NTASKS*",
                       "SLURM_NPROCS",     "SLURM_TASKS*",   "SLURM_CPUS_PER*",   "SLURM_GPUS*",
                       "SLURM_MEM*",       "SLURM_HINT*"};
    program.argv[0] = command_word(words[0]);
    return base::ask(std::move(program), limit);
  };
}

namespace {

constexpr size_t kMostAsked = 8;  // of PBS at a time, a command a job

bool has(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

// also "CANCELLED by 1000"
bool is_final(const std::string& state) {
  static const Words kFinal = {"BOOT_FAIL*", "CANCELLED*", "COMPLETED*", "DEADLINE*",     "FAILED*",
                               "NODE_FAIL*", "PREEMPTED*", "TIMEOUT*",   "OUT_OF_MEMORY*"};
  return base::is_among(state, kFinal);
}

std::string trouble_of(const char* command, const base::Answer& answer) {
  if (answer.end == base::Answer::not_started) return format("{} cannot be started", command);
  if (answer.end == base::Answer::late) return format("{} has not answered in time", command);
  const auto said = base::trimmed(answer.errors);
  return format("{} left with {}: {}", command, answer.status,
                said.empty() ? "without a word" : base::printable(said, 300));
}

Words for_cluster(const Scheduler& scheduler, Words words) {
  if (!scheduler.cluster.empty()) words.push_back("--clusters=" + scheduler.cluster);
  return words;
}

// The controller forgets a job some minutes after its end; accounts remember it, where they are kept.
void ask_sacct(const Scheduler& scheduler, const RunCommand& run, std::map<std::string, Seen>& seen) {
  Words unknown;
  for (const auto& [job, said] : seen) {
    if (said.state == Seen::unknown) unknown.push_back(job);
  }
  if (unknown.empty()) return;
  const auto answer =
      run(for_cluster(scheduler, {"sacct", "--noheader", "--allocations", "--parsable2",
                                  "--format=JobID,State", "--jobs=" + base::join(unknown, ",")}));
  if (!answer.good()) return;
  for (const auto& [job, said] : read_sacct(answer.output)) {
    if (const auto place = seen.find(job); place != seen.end()) place->second = said;
  }
}

Look ask_slurm(const Scheduler& scheduler, const Words& jobs, const RunCommand& run) {
  std::set<std::string> arrays;
  for (const auto& job : jobs) arrays.insert(array_of(job));
  const auto answer = run(for_cluster(
      scheduler, {"squeue", "--noheader", "--array", "--states=all",
                  "--jobs=" + base::join({arrays.begin(), arrays.end()}, ","), "--format=%i|%T|%r"}));
  const bool is_forgotten = answer.end == base::Answer::left && has(answer.errors, "Invalid job id");
  if (!answer.good() && !is_forgotten) return {{}, trouble_of("squeue", answer)};
  Look look{read_squeue(is_forgotten ? "" : answer.output, jobs)};
  ask_sacct(scheduler, run, look.seen);
  return look;
}

// Nothing where it did not answer; a server that keeps a history tells how the job ended.
std::optional<Seen> ask_qstat(const std::string& job, const RunCommand& run, std::string& trouble) {
  const auto answer = run({"qstat", "-f", job});
  if (answer.good()) return read_qstat(answer.output);
  if (has(answer.errors, "Unknown Job Id")) return Seen{Seen::gone, "unknown to qstat"};
  if (!has(answer.errors, "has finished")) {
    trouble = trouble_of("qstat", answer);
    return std::nullopt;
  }
  const auto history = run({"qstat", "-x", "-f", job});
  return history.good() ? read_qstat(history.output) : Seen{Seen::gone, "finished"};
}

Look ask_pbs(const Words& jobs, const RunCommand& run) {
  Look look;
  for (size_t i = 0; i < std::min(jobs.size(), kMostAsked); ++i) {
    const auto seen = ask_qstat(jobs[i], run, look.trouble);
    if (!seen) break;  // the next one would wait as long
    look.seen[jobs[i]] = *seen;
  }
  return look;
}

}  // namespace

Look look_at(const Scheduler& scheduler, const Words& jobs, const RunCommand& run) {
  return scheduler.slurm() ? ask_slurm(scheduler, jobs, run) : ask_pbs(jobs, run);
}

std::map<std::string, Seen> read_squeue(const std::string& answer, const Words& jobs) {
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
  // A controller that knows an array's other tasks knows of this one, too: it keeps nothing of one that was
  // cancelled before it began.
  for (auto& [job, said] : seen) {
    if (said.state == Seen::unknown && arrays.contains(array_of(job)))
      said = {Seen::gone, "that it is in its array no more"};
  }
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

Fields qstat_fields(const std::string& answer) {
  Fields fields;
  std::string* last = nullptr;
  for (const auto& line : base::split(answer, '\n')) {
    const auto sign = line.find(" = ");
    if (line.starts_with("\t")) {
      if (last) *last += line.substr(1);
    } else if (line.starts_with("    ") && sign != std::string::npos) {
      last = &(fields[base::trimmed(line.substr(0, sign))] = line.substr(sign + 3));
    }
  }
  return fields;
}

Seen read_qstat(const std::string& answer) {
  auto fields = qstat_fields(answer);
  const auto state = base::printable(fields["job_state"]), comment = base::printable(fields["comment"]);
  if (state == "F" || state == "X" || state == "C") {
    const auto status = base::printable(fields["Exit_status"]);
    return {Seen::gone, "finished" + (status.empty() ? "" : " with status " + status)};
  }
  const bool waits = state == "Q" || state == "H" || state == "W" || state == "T";
  return {waits ? Seen::queued : Seen::running,
          state + (waits && !comment.empty() ? format(" ({})", comment) : "")};
}

int64_t seconds_in(const std::string& time) {
  constexpr long long kMost = 1'000'000'000;
  const auto number = [](const std::string& text) {
    const auto found = base::number_in(text);
    return found && *found >= 0 && *found < kMost ? found : std::nullopt;
  };
  const auto dash = time.find('-');
  const auto days = dash == std::string::npos ? 0 : number(time.substr(0, dash));
  const auto parts = base::split(time.substr(dash == std::string::npos ? 0 : dash + 1), ':');
  if (!days || parts.size() > 3) return 0;
  int64_t seconds = 0;
  for (const auto& part : parts) {
    const auto next = number(part);
    if (!next) return 0;
    seconds = seconds * 60 + *next;
  }
  return *days * 86400 + seconds;
}

// ---- handing a script in ----

namespace {

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

// A log in two files, a job that waits for its end, an array that nobody asked for; and what a job around us
// was told, as sbatch hands its environment on.
const Words kNeverForSbatch = {
    "SBATCH_ERROR",   "SBATCH_INPUT",     "SBATCH_WAIT",          "SBATCH_ARRAY_INX",   "SQUEUE_*",
    "SLURM_ARRAY_*",  "LOCKSTEP_RESTART", "SLURM_CPUS_*",         "SLURM_GPUS*",        "SLURM_JOBID",
    "SLURM_JOB_*",    "SLURM_LOCALID",    "SLURM_MEM_PER_*",      "SLURM_NNODES",       "SLURM_NODEID",
    "SLURM_NODELIST", "SLURM_NPROCS",     "SLURM_NTASKS*",        "SLURM_PROCID",       "SLURM_RESTART_COUNT",
    "SLURM_STEP*",    "SLURM_SUBMIT_*",   "SLURM_TASKS_PER_NODE", "SLURM_TRES_PER_TASK"};

// "--mem=4G" -> "--mem", "-C gpu" -> "-C"
Words sbatch_options_in(const std::string& script) {
  constexpr std::string_view kMark = "#SBATCH ";
  Words options;
  for (const auto& line : base::split(script, '\n')) {
    if (!line.starts_with(kMark)) continue;
    const auto text = base::trimmed(line.substr(kMark.size()));
    options.push_back(text.starts_with("--") ? text.substr(0, text.find_first_of("= ")) : text.substr(0, 2));
  }
  return options;
}

// Those of this process's environment that sbatch or qsub is not to hear with this script.
Words variables_to_drop(const Scheduler& scheduler, const std::string& script) {
  auto patterns = scheduler.slurm() ? kNeverForSbatch : Words{"PBS_DPREFIX"};  // what begins a directive
  const auto said = sbatch_options_in(script);
  for (const auto& row : kOverruling) {
    if (std::ranges::find_first_of(said, row.options) != said.end()) patterns.emplace_back(row.variable);
  }
  Words names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (base::is_among(name, patterns)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// 7, 7;cluster, 7.server, 7[].server; not a date or a share of a banner's
bool is_id(const std::string& word) {
  const auto digits = std::min(word.find_first_not_of("0123456789"), word.size());
  if (digits == 0) return false;
  if (digits < word.size() && std::string_view(";.[").find(word[digits]) == std::string_view::npos)
    return false;
  return std::ranges::all_of(word, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

// sites' own words may stand before it
Submitted id_in(const std::string& output) {
  const auto lines = base::split(output, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto word = base::trimmed(*line);
    if (!is_id(word)) continue;
    const auto sign = std::min(word.find(';'), word.size());  // sbatch --parsable: ID;CLUSTER
    return {word.substr(0, sign), word.substr(std::min(sign + 1, word.size())), {}};
  }
  return {};
}

// a banner on the one stream must not hide what the other one says
std::string words_of(const base::Answer& answer) {
  const auto said = base::trimmed(base::trimmed(answer.errors) + "\n" + base::trimmed(answer.output));
  return said.empty() ? "without a word" : said;
}

[[noreturn]] void refuse_submission(const SubmitCommand& command, const base::Answer& answer,
                                    std::chrono::milliseconds limit) {
  const auto name = fs::path(command.words[0]).filename().string();
  if (answer.end == base::Answer::not_started)
    throw InputError(format("{} cannot be started", name), command.words[0],
                     "submit where the scheduler's commands are: on a login node");
  if (answer.end == base::Answer::late)
    throw Error(format("{} has not answered within {} s: nobody knows whether there is a job. It said: {}",
                       name, std::chrono::ceil<std::chrono::seconds>(limit).count(), words_of(answer)),
                shown(command), "look into the queue before you submit again");
  throw Error(format("{} refused the job (status {}): {}", name, answer.status, words_of(answer)),
              shown(command),
              "the scheduler says why: change what it names (--queue, --account, --time, --nodes, the "
              "site's file), or wait until it can be reached, and submit again");
}

}  // namespace

SubmitCommand submit_command(const Scheduler& scheduler, const std::string& path, const std::string& script) {
  SubmitCommand command{{command_word(scheduler.slurm() ? "sbatch" : "qsub")},
                        variables_to_drop(scheduler, script)};
  if (scheduler.slurm()) command.words.emplace_back("--parsable");
  command.words = for_cluster(scheduler, command.words);
  command.words.push_back(path.starts_with('-') ? "./" + path : path);
  return command;
}

std::string shown(const SubmitCommand& command) {
  Words words;
  if (!command.without.empty()) words.emplace_back("env");
  for (const auto& name : command.without) words.insert(words.end(), {"-u", name});
  words.insert(words.end(), command.words.begin(), command.words.end());
  return quoted(words);
}

Submitted submit(const SubmitCommand& command, std::chrono::milliseconds limit) {
  if (find_command(fs::path(command.words[0]).filename().string()).empty())
    throw InputError(format("there is no {} here", command.words[0]), "PATH",
                     "submit where the scheduler's commands are: on a login node; --dry-run shows the job");
  const auto answer = base::ask({.argv = command.words, .without = command.without, .apart = true}, limit);
  if (!answer.good()) refuse_submission(command, answer, limit);
  auto submitted = id_in(answer.output);
  if (submitted.id.empty())
    throw Error(format("{} took the job, and names no id: {}", command.words[0], words_of(answer)),
                shown(command), "look into the queue");
  submitted.said = base::trimmed(answer.errors);
  return submitted;
}

}  // namespace lockstep::cluster
