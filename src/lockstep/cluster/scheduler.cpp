#include "lockstep/cluster/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/answer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/words.h"
#include "lockstep/cluster/quote.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kSubmit = 120s;  // busy controllers answer late
constexpr auto kLook = 15s;
constexpr size_t kMostAsked = 8;  // of PBS at a time, a command a job

// where commands are looked for: PBS is often off the PATH
std::vector<std::string> folders() {
  const char* path = std::getenv("PATH");
  auto all = base::split(path ? path : "", ':');
  const char* pbs = std::getenv("PBS_EXEC");
  all.push_back(std::string(pbs && *pbs ? pbs : "/opt/pbs") + "/bin");
  return all;
}

bool is_id(const std::string& word) {
  const auto digits = std::min(word.find_first_not_of("0123456789"), word.size());
  if (digits == 0) return false;
  return std::ranges::all_of(word, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

// sites' own words may stand before it
std::string id_in(const std::string& output) {
  const auto lines = base::split(output, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto word = base::trimmed(*line);
    if (is_id(word)) return word.substr(0, word.find(';'));  // sbatch --parsable: ID;CLUSTER
  }
  return "";
}

[[noreturn]] void refuse(const std::vector<std::string>& words, const base::Answer& answer) {
  const auto command = fs::path(words[0]).filename().string();
  if (answer.end == base::Answer::not_started)
    throw InputError(format("{} cannot be started", command), words[0],
                     "submit where the scheduler's commands are: on a login node");
  if (answer.end == base::Answer::late)
    throw Error(format("{} has not answered within {} s: nobody knows whether there is a job", command,
                       std::chrono::seconds(kSubmit).count()),
                quoted(words), "look into the queue before you submit again");
  const auto said = base::trimmed(answer.errors.empty() ? answer.output : answer.errors);
  throw Error(format("{} refused the job (status {}): {}", command, answer.status,
                     said.empty() ? "without a word" : said),
              quoted(words),
              "these are the scheduler's words: change what was asked for (--queue, --account, "
              "--time, --nodes, the site's file) and submit again");
}

bool has(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

std::string base_of(const std::string& job) {
  return job.substr(0, job.find('_'));
}

std::map<std::string, Seen> ask_slurm(const std::vector<std::string>& jobs) {
  std::vector<std::string> bases;
  for (const auto& job : jobs) {
    if (!std::ranges::count(bases, base_of(job))) bases.push_back(base_of(job));
  }
  const auto answer = base::ask(
      {"squeue", "--noheader", "--array", "--jobs=" + base::join(bases, ","), "--format=%i|%T|%r"}, kLook);
  if (answer.good()) return read_squeue(answer.output, jobs);
  // a job that was over some minutes ago is not known any more
  if (answer.end == base::Answer::left && has(answer.errors, "Invalid job id")) return read_squeue("", jobs);
  return {};
}

std::map<std::string, Seen> ask_pbs(const std::vector<std::string>& jobs) {
  std::map<std::string, Seen> seen;
  const auto qstat = find_command("qstat");
  for (size_t i = 0; i < std::min(jobs.size(), kMostAsked); ++i) {
    const auto answer = base::ask({qstat.empty() ? "qstat" : qstat, "-f", jobs[i]}, kLook);
    if (answer.good())
      seen[jobs[i]] = read_qstat(answer.output);
    else if (has(answer.errors, "Unknown Job Id") || has(answer.errors, "has finished"))
      seen[jobs[i]] = {Seen::gone, "gone"};
    else
      break;  // the next one would wait as long
  }
  return seen;
}

}  // namespace

std::string find_command(const std::string& name) {
  for (const auto& folder : folders()) {
    const auto path = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code none;
    if (fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

std::string guess_scheduler() {
  const bool slurm = !find_command("sbatch").empty(), pbs = !find_command("qsub").empty();
  if (slurm != pbs) return slurm ? "slurm" : "pbs";
  throw InputError(slurm ? "both sbatch and qsub are here: which scheduler is meant?"
                         : "there is neither sbatch nor qsub here",
                   "PATH",
                   slurm
                       ? "add --scheduler slurm or --scheduler pbs, or a --site"
                       : "submit on a login node of the cluster; --dry-run --scheduler slurm shows the job");
}

std::vector<std::string> submit_words(const Site& site, const std::string& script) {
  const auto found = find_command(site.submit_command());
  const bool on_path = found.empty() || !found.starts_with("/opt/pbs/");
  std::vector<std::string> words = {on_path ? site.submit_command() : found};
  if (site.slurm()) words.emplace_back("--parsable");
  words.push_back(script.starts_with('-') ? "./" + script : script);
  return words;
}

std::string submit(const std::vector<std::string>& words) {
  const auto command = words[0].find('/') == std::string::npos ? find_command(words[0]) : words[0];
  if (command.empty())
    throw InputError(format("there is no {} here", words[0]), "PATH",
                     "submit where the scheduler's commands are: on a login node; --dry-run shows the job");
  auto argv = words;
  argv[0] = command;
  const auto answer = base::ask(argv, kSubmit);
  if (!answer.good()) refuse(words, answer);
  const auto id = id_in(answer.output);
  if (id.empty())
    throw Error(format("{} took the job, and names no id: {}", words[0], base::printable(answer.output)),
                quoted(words), "look into the queue");
  return id;
}

std::map<std::string, Seen> look_at(const std::string& scheduler, const std::vector<std::string>& jobs) {
  return scheduler == "slurm" ? ask_slurm(jobs) : ask_pbs(jobs);
}

std::string task_id(const std::string& scheduler, const std::string& array, size_t index) {
  if (scheduler == "slurm") return format("{}_{}", array, index);
  const auto bracket = array.find("[]");
  return bracket == std::string::npos
             ? array
             : array.substr(0, bracket + 1) + std::to_string(index) + array.substr(bracket + 1);
}

std::string array_of(const std::string& task) {
  const auto open = task.find('['), close = task.find(']');
  if (open == std::string::npos || close == std::string::npos) return base_of(task);
  return task.substr(0, open + 1) + task.substr(close);
}

std::string how_to_look(const std::string& scheduler, const std::string& job) {
  return scheduler == "slurm" ? "squeue --jobs=" + job : "qstat " + quoted(job);
}

std::string how_to_cancel(const std::string& scheduler, const std::string& job) {
  return (scheduler == "slurm" ? "scancel " : "qdel ") + quoted(job);
}

std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job) {
  if (scheduler == "slurm") return format("{}-{}.out", name, job);
  const auto number = job.substr(0, job.find_first_not_of("0123456789"));
  const auto bracket = job.find('[');
  const auto index =
      bracket == std::string::npos ? "" : "." + job.substr(bracket + 1, job.find(']') - bracket - 1);
  return format("{}.o{}{}", name.substr(0, 15), number, index);
}

std::map<std::string, Seen> read_squeue(const std::string& answer, const std::vector<std::string>& jobs) {
  std::map<std::string, Seen> seen;
  for (const auto& job : jobs) seen[job] = {Seen::gone, "gone"};
  for (const auto& line : base::split(answer, '\n')) {
    const auto parts = base::split(base::trimmed(line), '|');
    if (parts.size() < 2 || !seen.contains(parts[0])) continue;
    const bool waits = parts[1] == "PENDING" || parts[1].starts_with("REQUEUE") || parts[1] == "SPECIAL_EXIT";
    const bool because = waits && parts.size() > 2 && parts[2] != "None";
    seen[parts[0]] = {waits ? Seen::queued : Seen::running,
                      parts[1] + (because ? format(" ({})", base::printable(parts[2])) : "")};
  }
  return seen;
}

Seen read_qstat(const std::string& answer) {
  std::string state, comment;
  for (const auto& line : base::split(answer, '\n')) {
    const auto text = base::trimmed(line);
    if (text.starts_with("job_state = ")) state = text.substr(12);
    if (text.starts_with("comment = ")) comment = base::printable(text.substr(10));
  }
  if (state == "F" || state == "X" || state == "C") return {Seen::gone, "gone"};
  const bool waits = state == "Q" || state == "H" || state == "W" || state == "T";
  return {waits ? Seen::queued : Seen::running,
          state + (waits && !comment.empty() ? format(" ({})", comment) : "")};
}

}  // namespace lockstep::cluster
