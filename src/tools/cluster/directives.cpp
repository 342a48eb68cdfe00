#include "tools/cluster/directives.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/cluster/site_keys.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kLongestJobName = 200;  // PBS takes 230

using Lines = std::vector<std::string>;

// A scheduler reads its directives by rules of its own, and quotes are no help in all of them.
const std::string& word(const char* option, const std::string& text) {
  if (is_directive_word(text)) return text;
  throw InputError(format("{}: '{}' is no word that a scheduler takes", option, base::printable(text)), "",
                   "letters, digits and ._+-@:/=, make one");
}

const std::string& job_name(const std::string& name) {
  const bool other = name.find_first_of("@:/=,") != std::string::npos;
  if (is_directive_word(name) && !other && name.size() <= kLongestJobName) return name;
  throw InputError(format("--name: '{}' is no name for a job", base::printable(name)), "",
                   format("letters, digits and ._+- make one, {} at most", kLongestJobName));
}

// "--qos", "x" -> "--qos=x"; "-q", "x" -> "-q x"
std::string option(const std::string& flag, const std::string& value) {
  return flag + (flag.starts_with("--") ? "=" : " ") + value;
}

std::string clock(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  return format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

// In seconds: how long before its end a job is told of it. Slurm tells one that is shorter at once.
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

void ask_who(const Site& site, const JobRequest& request, const Resources& given, Lines& lines) {
  if (!given.queue.name.empty()) lines.push_back(option(site.queue_flag, word("--queue", given.queue.name)));
  if (!request.account.empty())
    lines.push_back(option(site.account_flag, word("--account", request.account)));
}

std::string chunks(const Site& site, const Resources& given) {
  std::string text = format("select={}", given.nodes);
  if (site.form == "select") text += format(":ncpus={}:mpiprocs={}", cpus(site, given.cores), given.ranks);
  if (site.form == "select" && given.gpus > 0) text += format(":ngpus={}", given.gpus);
  if (site.form == "select" && memory(given) > 0) text += format(":mem={}gb", memory(given));
  return text + (site.chunk.empty() ? "" : ":" + site.chunk);
}

void ask_totals(const Site& site, const Resources& given, Lines& lines) {
  lines.push_back(format("-l ncpus={}", given.nodes * cpus(site, given.cores)));
  if (given.gpus > 0) lines.push_back(format("-l ngpus={}", given.nodes * given.gpus));
  if (memory(given) > 0) lines.push_back(format("-l mem={}GB", given.nodes * memory(given)));
}

void ask_chunks(const Site& site, const Resources& given, Lines& lines) {
  lines.push_back("-l " + chunks(site, given));
  if (given.nodes > 1) lines.emplace_back("-l place=scatter");
}

void ask_storage(const Site& site, const JobRequest& request, Lines& lines) {
  const auto& storage = request.storage.empty() ? site.storage : request.storage;
  if (!storage.empty()) lines.push_back(format("-l {}={}", site.storage_flag, word("--storage", storage)));
}

void check_storage(const Site& site, const JobRequest& request) {
  if (request.storage.find(',') != std::string::npos)
    throw InputError("--storage: a comma would begin another resource", site.path,
                     "join the names with + or :, as the site does");
  if (request.storage.empty() || (!site.slurm() && !site.storage_flag.empty())) return;
  throw InputError(format("--storage: jobs of {} name no file systems", site.name), site.path,
                   "leave it out");
}

Lines pbs(const Site& site, const JobRequest& request, const Resources& given) {
  Lines lines = {"-N " + job_name(request.name)};
  ask_who(site, request, given, lines);
  if (site.form == "totals")
    ask_totals(site, given, lines);
  else
    ask_chunks(site, given, lines);
  lines.push_back("-l walltime=" + clock(request.time));
  ask_storage(site, request, lines);
  lines.insert(lines.end(), {"-j oe", "-r y"});
  if (request.sweep.size() > 1) lines.push_back(format("-J 0-{}", request.sweep.size() - 1));
  if (!request.dependency.empty()) lines.push_back("-W depend=" + word("a dependency", request.dependency));
  return lines;
}

Lines slurm(const Site& site, const JobRequest& request, const Resources& given) {
  Lines lines = {"--job-name=" + job_name(request.name)};
  ask_who(site, request, given, lines);
  lines.push_back(format("--nodes={}", given.nodes));
  lines.push_back(format("--ntasks-per-node={}", given.ranks));
  lines.push_back(
      format("--cpus-per-task={}", cpus(site, std::max(given.cores_per_rank, given.cores / given.ranks))));
  if (given.gpus > 0) lines.push_back(format("--gpus-per-node={}", given.gpus));
  if (memory(given) > 0) lines.push_back(format("--mem={}G", memory(given)));
  lines.push_back("--time=" + clock(request.time));
  const bool array = !request.sweep.empty();
  lines.emplace_back(array ? "--output=%x-%A_%a.out" : "--output=%x-%j.out");
  // a requeued job goes on in its log
  lines.insert(lines.end(),
               {"--open-mode=append", "--requeue", format("--signal=B:USR1@{}", lead(request.time))});
  if (array) lines.push_back(format("--array=0-{}", request.sweep.size() - 1));
  if (!request.dependency.empty())
    lines.push_back("--dependency=" + word("a dependency", request.dependency));
  return lines;
}

}  // namespace

std::vector<std::string> directives(const Site& site, const JobRequest& request, const Resources& given) {
  check_storage(site, request);
  auto lines = site.slurm() ? slurm(site, request, given) : pbs(site, request, given);
  for (const auto* more : {&site.directives, &given.queue.directives})
    lines.insert(lines.end(), more->begin(), more->end());
  return lines;
}

}  // namespace lockstep::cluster
