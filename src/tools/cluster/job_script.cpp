#include "tools/cluster/job_script.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "tools/cluster/scheduler.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {
namespace {

// ---- resources ----

constexpr int64_t kRanksWithoutGpus = 2;  // as in job_scripts/ddp.*
constexpr int64_t kMost = 1'000'000;

std::string place(const Site& site, const Queue& queue) {
  return queue.name.empty() ? site.path : format("{}, queue {}", site.path, queue.name);
}

int64_t ranks_of(const JobRequest& request, const Resources& given) {
  if (request.ranks_per_node > 0) return request.ranks_per_node;
  if (given.gpus > 0) return given.gpus;
  return given.queue.ranks_per_node > 0 ? given.queue.ranks_per_node : kRanksWithoutGpus;
}

bool takes_whole_nodes(const Site& site, const Resources& given) {
  return site.form == "nodes" && given.queue.cores_per_node > 0;
}

bool has_cores_of_gpus(const Resources& given) {
  return given.gpus > 0 && given.queue.cores_per_gpu > 0;
}

// The cores that the site assigns with whole nodes, with GPUs, or a share of a node's ranks; 0 = unknown.
int64_t assigned_cores(const Site& site, const Resources& given) {
  const auto& queue = given.queue;
  if (takes_whole_nodes(site, given)) return queue.cores_per_node;
  if (has_cores_of_gpus(given)) return given.gpus * queue.cores_per_gpu;
  if (given.gpus > 0 && queue.gpus_per_node > 0)
    return queue.cores_per_node * given.gpus / queue.gpus_per_node;
  if (given.gpus > 0 || queue.ranks_per_node == 0) return 0;
  return std::min(queue.cores_per_node, queue.cores_per_node * given.ranks / queue.ranks_per_node);
}

struct Limit {
  bool is_exceeded;
  std::string what, hint;
};

void check(const std::vector<Limit>& limits, const std::string& where) {
  for (const auto& limit : limits)
    if (limit.is_exceeded) throw InputError(limit.what, where, limit.hint);
}

Limit range(const char* option, int64_t value, int64_t least) {
  return {value < least || value > kMost,
          format("{} must be from {} to {} (got {})", option, least, kMost, value),
          format("use {} {}", option, std::max<int64_t>(1, least))};
}

Limit most(const char* option, int64_t value, int64_t most) {
  return {most > 0 && value > most, format("{} {}: the site allows at most {}", option, value, most),
          format("use {} or less, or another --queue", most)};
}

}  // namespace

Resources resources(const Site& site, const JobRequest& request) {
  Resources given{.queue = find_queue(site, request.queue), .nodes = request.nodes};
  const auto& queue = given.queue;
  const auto where = place(site, queue);
  given.gpus =
      request.gpus_per_node == -1 ? std::max<int64_t>(0, queue.gpus_per_node) : request.gpus_per_node;
  const auto time = config::parse_duration(request.time);
  given.time = time.value_or(std::chrono::milliseconds(0));
  check({range("--nodes", given.nodes, 1),
         most("--nodes", given.nodes, queue.max_nodes),
         {given.nodes < queue.min_nodes,
          format("--nodes {}: the queue requires at least {}", given.nodes, queue.min_nodes),
          "use more, or another --queue"},
         range("--gpus-per-node", given.gpus, 0),
         most("--gpus-per-node", given.gpus, queue.gpus_per_node),
         {given.gpus > 0 && queue.gpus_per_node == 0,
          format("--gpus-per-node {}: these nodes have no GPUs that lockstep can use", given.gpus),
          "use another --queue, or --gpus-per-node 0"},
         range("--ranks-per-node", request.ranks_per_node, 0),
         range("--cpus-per-rank", request.cores_per_rank, 0),
         {given.time < std::chrono::minutes(1),
          format("--time needs a duration of at least 1m (got {})", base::printable(request.time)),
          "use --time 30m, --time 2h or --time 1h30m"},
         {queue.max_time.count() > 0 && given.time > queue.max_time,
          format("--time {}: the site allows at most {}", base::printable(request.time),
                 config::duration_text(queue.max_time)),
          "use less time: a job that stops early continues in a new job"},
         {site.account == "required" && request.account.empty(),
          format("the site {} requires an account", site.name), "add --account NAME"},
         {site.account == "none" && !request.account.empty(),
          format("--account: the site {} has no accounts", site.name), "omit it"},
         {request.storage.find(',') != std::string::npos,
          "--storage cannot contain a comma, which starts another resource", "join the names with + or :"},
         {!request.storage.empty() && (site.slurm() || site.storage_flag.empty()),
          format("--storage: jobs on the site {} do not request file systems", site.name), "omit it"}},
        where);
  given.ranks = ranks_of(request, given);
  const auto assigned = assigned_cores(site, given);
  given.cores_per_rank =
      request.cores_per_rank > 0 ? request.cores_per_rank : std::max<int64_t>(1, assigned / given.ranks);
  const auto needed = given.ranks * given.cores_per_rank;
  given.cores =
      takes_whole_nodes(site, given) || has_cores_of_gpus(given) ? std::max(needed, assigned) : needed;
  const auto asked = format("{} ranks of {} cores on a node", given.ranks, given.cores_per_rank);
  const auto whole = queue.cores_per_node;
  check(
      {{has_cores_of_gpus(given) && !takes_whole_nodes(site, given) && needed > assigned,
        format("{} need more than the {} cores of {} GPUs", asked, assigned, given.gpus),
        format("use {} cores per GPU or less", queue.cores_per_gpu)},
       {whole > 0 && given.cores > whole, format("{}: the nodes have {} cores", asked, whole),
        "lower --ranks-per-node or --cpus-per-rank"},
       // totals do not say how the job is spread over its nodes
       {site.form == "totals" && given.nodes > 1 && whole > 0 && given.cores != whole,
        format("{} nodes with {} cores each: multi-node jobs must use whole nodes", given.nodes, given.cores),
        format("request all {} cores and all GPUs of each node", whole)}},
      where);
  return given;
}

namespace {

// ---- directives ----

constexpr size_t kLongestJobName = 200;  // PBS takes 230

using Lines = std::vector<std::string>;

// Quotes do not protect a text in every scheduler's directives.
const std::string& word(const char* option, const std::string& text) {
  if (is_directive_word(text)) return text;
  throw InputError(format("{}: '{}' is not one word", option, base::printable(text)), "",
                   "use only letters, digits and these characters: . _ + - @ : / = ,");
}

const std::string& job_name(const std::string& name) {
  const bool other = name.find_first_of("@:/=,") != std::string::npos;
  if (is_directive_word(name) && !other && name.size() <= kLongestJobName) return name;
  throw InputError(format("--name: '{}' is not a job name", base::printable(name)), "",
                   format("use letters, digits and ._+-, at most {}", kLongestJobName));
}

// "--qos", "x" -> "--qos=x"; "-q", "x" -> "-q x"
std::string option(const std::string& flag, const std::string& value) {
  return flag + (flag.starts_with("--") ? "=" : " ") + value;
}

std::string clock(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  return format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

// Seconds before the job's end at which Slurm signals it. Slurm signals shorter jobs at once.
int64_t lead(std::chrono::milliseconds time) {
  constexpr int64_t kLongest = 120, kShare = 5;
  return std::min(kLongest, std::chrono::ceil<std::chrono::seconds>(time).count() / kShare);
}

int64_t cpus(const Site& site, int64_t cores) {
  return cores * std::max<int64_t>(1, site.threads_per_core);
}

// of a node, as much of its memory as of its cores
int64_t memory(const Resources& given) {
  const auto& queue = given.queue;
  if (queue.memory_gb == 0 || queue.cores_per_node == 0) return 0;
  return std::max<int64_t>(1, queue.memory_gb * given.cores / queue.cores_per_node);
}

std::string chunks(const Site& site, const Resources& given) {
  std::string text = format("select={}", given.nodes);
  if (site.form == "select") text += format(":ncpus={}:mpiprocs={}", cpus(site, given.cores), given.ranks);
  if (site.form == "select" && given.gpus > 0) text += format(":ngpus={}", given.gpus);
  if (site.form == "select" && memory(given) > 0) text += format(":mem={}gb", memory(given));
  return text + (site.chunk.empty() ? "" : ":" + site.chunk);
}

void add_queue_and_account(const Site& site, const JobRequest& request, const Resources& given,
                           Lines& lines) {
  if (!given.queue.name.empty()) lines.push_back(option(site.queue_flag, word("--queue", given.queue.name)));
  if (!request.account.empty())
    lines.push_back(option(site.account_flag, word("--account", request.account)));
}

Lines pbs(const Site& site, const JobRequest& request, const Resources& given) {
  Lines lines = {"-N " + job_name(request.name)};
  add_queue_and_account(site, request, given, lines);
  if (site.form == "totals") {
    lines.push_back(format("-l ncpus={}", given.nodes * cpus(site, given.cores)));
    if (given.gpus > 0) lines.push_back(format("-l ngpus={}", given.nodes * given.gpus));
    if (memory(given) > 0) lines.push_back(format("-l mem={}GB", given.nodes * memory(given)));
  } else {
    lines.push_back("-l " + chunks(site, given));
    if (given.nodes > 1) lines.emplace_back("-l place=scatter");
  }
  lines.push_back("-l walltime=" + clock(given.time));
  const auto& storage = request.storage.empty() ? site.storage : request.storage;
  if (!storage.empty()) lines.push_back(format("-l {}={}", site.storage_flag, word("--storage", storage)));
  lines.insert(lines.end(), {"-j oe", "-r y"});
  if (!request.sweep.empty()) lines.push_back(format("-J 0-{}", request.sweep.size() - 1));
  if (!request.dependency.empty()) lines.push_back("-W depend=" + word("a dependency", request.dependency));
  return lines;
}

Lines slurm(const Site& site, const JobRequest& request, const Resources& given) {
  Lines lines = {"--job-name=" + job_name(request.name)};
  add_queue_and_account(site, request, given, lines);
  lines.push_back(format("--nodes={}", given.nodes));
  lines.push_back(format("--ntasks-per-node={}", given.ranks));
  lines.push_back(
      format("--cpus-per-task={}", cpus(site, std::max(given.cores_per_rank, given.cores / given.ranks))));
  if (given.gpus > 0) lines.push_back(format("--gpus-per-node={}", given.gpus));
  if (memory(given) > 0) lines.push_back(format("--mem={}G", memory(given)));
  lines.push_back("--time=" + clock(given.time));
  const bool array = !request.sweep.empty();
  lines.emplace_back(array ? "--output=%x-%A_%a.out" : "--output=%x-%j.out");
  // a requeued job appends to its log
  lines.insert(lines.end(),
               {"--open-mode=append", "--requeue", format("--signal=B:USR1@{}", lead(given.time))});
  if (array) lines.push_back(format("--array=0-{}", request.sweep.size() - 1));
  if (!request.dependency.empty())
    lines.push_back("--dependency=" + word("a dependency", request.dependency));
  return lines;
}

// ---- the script ----

std::string assign(const std::string& name, const std::string& value) {
  return format("export {}={}\n", name, quoted(value));
}

std::vector<std::string> settings(const std::vector<std::string>& sets) {
  std::vector<std::string> words;
  for (const auto& set : sets) words.insert(words.end(), {"--set", set});
  return words;
}

std::string head(const Site& site, const JobRequest& request, const Resources& given) {
  auto lines = site.slurm() ? slurm(site, request, given) : pbs(site, request, given);
  for (const auto* more : {&site.directives, &given.queue.directives})
    lines.insert(lines.end(), more->begin(), more->end());
  std::string text = "#!/bin/bash\n";
  for (const auto& line : lines) text += (site.slurm() ? "#SBATCH " : "#PBS ") + line + "\n";
  return text;
}

std::string preamble(const Site& site, const JobRequest& request, const Resources& given) {
  const auto home = base::home_folder();
  if (home.empty())
    throw InputError("the job scripts of lockstep are not found", "", "set LOCKSTEP_HOME to their folder");
  // lockstep job has its own timer where Slurm sends its warning at once
  std::string text = site.slurm() ? "trap '' USR1\n" : "cd \"$PBS_O_WORKDIR\" || exit 2\n";
  text += assign("LOCKSTEP_HOME", std::filesystem::absolute(home).string());
  const char* set = std::getenv("LOCKSTEP_PROGRAM");
  const auto program = set && *set ? set : std::filesystem::canonical("/proc/self/exe").string();
  text += format("export LOCKSTEP_PROGRAM=${{LOCKSTEP_PROGRAM:-{}}}\n", quoted(program));
  text += assign("LOCKSTEP_RANKS_PER_NODE", format("{}", given.ranks));
  text += assign("LOCKSTEP_CPUS_PER_RANK", format("{}", given.cores_per_rank));
  if (site.threads_per_core > 0)
    text += assign("LOCKSTEP_THREADS_PER_CORE", format("{}", site.threads_per_core));
  if (!site.start.empty()) text += assign("LOCKSTEP_START", site.start);
  if (!site.srun_mpi.empty()) text += assign("LOCKSTEP_SRUN_MPI", site.srun_mpi);
  const std::string scratch = "${TMPDIR:-/tmp}";
  text += format("export LOCKSTEP_SCRATCH={}\n",
                 site.scratch.empty() ? scratch : format("${{{}:-{}}}", site.scratch, scratch));
  for (const auto& [name, value] : request.variables) text += assign(name, value);
  const auto* index = request.sweep.empty() ? " PBS_ARRAY_INDEX" : "";
  return text + format("unset SET CONFIG{}  # of the environment of submission\n", index);
}

std::string load_modules(const Site& site) {
  if (site.modules.empty()) return "";
  std::string text = "command -v module >/dev/null || . /etc/profile\n";
  for (const auto& module : site.modules) text += format("module load {} || exit 2\n", quoted(module));
  return text;
}

std::string choose_settings(const Site& site, const JobRequest& request) {
  if (request.sweep.empty()) return "";
  const char* index = site.slurm() ? "SLURM_ARRAY_TASK_ID" : "PBS_ARRAY_INDEX";
  std::string text = format("case ${{{}:-0}} in\n", index);
  for (size_t i = 0; i < request.sweep.size(); ++i)
    text += format("  {}) settings=({}) ;;\n", i, quoted(settings(request.sweep[i])));
  return text +
         format("  *) echo \"error: {}=${}, but the array has only tasks 0 to {}\" >&2; exit 2 ;;\nesac\n",
                index, index, request.sweep.size() - 1);
}

std::string train(const JobRequest& request) {
  // lockstep job takes a word with a leading dash for an option
  std::vector<std::string> words = {(request.config.starts_with('-') ? "./" : "") + request.config};
  const auto sets = settings(request.sets);
  words.insert(words.end(), sets.begin(), sets.end());
  return format("LOCKSTEP_SCRIPT=$0 exec \"$LOCKSTEP_PROGRAM\" job train {}{}\n", quoted(words),
                request.sweep.empty() ? "" : " \"${settings[@]}\"");
}

}  // namespace

std::string render(const Site& site, const JobRequest& request) {
  const auto given = resources(site, request);
  return head(site, request, given) + "\n" + preamble(site, request, given) + load_modules(site) + "\n" +
         choose_settings(site, request) + train(request);
}

}  // namespace lockstep::cluster
