// lockstep site detect: proposes a site file.
#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/scheduler.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"
#include "trainer/config/keys.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

// "32+" of sinfo means at least 32
int64_t number_of(const std::string& text) {
  return std::clamp<int64_t>(base::number_in(text).value_or(0), 0, 1'000'000);
}

bool is_usable(const std::string& name, FoundSite& found) {
  if (is_directive_word(name)) return true;
  found.notes.push_back("left out a queue whose name is not one word: " + name);
  return false;
}

// ---- PBS ----

using Blocks = std::vector<std::pair<std::string, Fields>>;

// Cores and GPUs of most nodes.
std::pair<int64_t, int64_t> common_kind(const Blocks& nodes, Words& notes) {
  std::map<std::pair<int64_t, int64_t>, int> kinds;
  for (const auto& [name, node] : nodes)
    ++kinds[{number_of(value(node, "resources_available.ncpus")),
             number_of(value(node, "resources_available.ngpus"))}];
  if (kinds.empty()) return {};
  if (kinds.size() > 1)
    notes.emplace_back("nodes differ, and PBS does not say which queue has which: check gpus_per_node below");
  return std::ranges::max_element(kinds, {}, [](const auto& entry) { return entry.second; })->first;
}

// ---- Slurm ----

// A line for each partition and kind of node: partition (* = the default), nodes, CPUs, sockets, cores a
// socket, gres, longest job, sizes of a job.
constexpr const char* kSinfoFormat = "%P|%D|%c|%X|%Y|%G|%l|%s";

// "gpu:a100:4(S:0-1),nvme:1": 4
int64_t gpus_of(const std::string& gres) {
  int64_t gpus = 0;
  for (const auto& one : base::split(gres, ',')) {
    const auto parts = base::split(one.substr(0, one.find('(')), ':');
    if (parts.size() > 1 && parts[0] == "gpu") gpus += number_of(parts.back());
  }
  return gpus;
}

Queue queue_of(const std::string& name, const Words& line) {
  Queue queue;
  queue.name = name;
  queue.gpus_per_node = gpus_of(line[5]);
  const auto cores = number_of(line[3]) * number_of(line[4]);
  queue.cores_per_node = cores > 0 ? cores : number_of(line[2]);
  queue.max_nodes = number_of(line[7].substr(line[7].find('-') + 1));  // "4", "1-4" or "1-infinite"
  queue.max_time = launch::seconds_in(line[6]);
  return queue;
}

}  // namespace

FoundSite read_pbs(const std::string& queues, const std::string& server, const std::string& nodes) {
  FoundSite found;
  found.site.scheduler = "pbs";
  const auto node_blocks = qstat_blocks(nodes);
  const auto [cores, gpus] = common_kind(node_blocks, found.notes);
  const auto servers = qstat_blocks(server);
  const auto default_queue = servers.empty() ? "" : value(servers[0].second, "default_queue");
  for (const auto& [name, block] : qstat_blocks(queues)) {
    const bool takes_jobs = value(block, "enabled") != "False" && value(block, "from_route_only") != "True";
    if (!takes_jobs || !is_usable(name, found)) continue;
    Queue queue;
    queue.name = name;
    if (!node_blocks.empty()) queue.gpus_per_node = gpus;
    queue.cores_per_node = cores;
    queue.min_nodes = number_of(value(block, "resources_min.nodect"));
    queue.max_nodes = number_of(value(block, "resources_max.nodect"));
    if (queue.max_nodes == 0) queue.max_nodes = std::ssize(node_blocks);
    queue.max_time = launch::seconds_in(value(block, "resources_max.walltime"));
    if (queue.name == default_queue) found.site.queue = default_queue;
    found.site.queues.push_back(queue);
  }
  return found;
}

FoundSite read_sinfo(const std::string& text) {
  struct Nodes {
    int64_t most = 0, all = 0;  // of one line, of all
  };
  FoundSite found;
  found.site.scheduler = "slurm";
  std::map<std::string, Nodes> nodes;
  for (const auto& row : base::split(text, '\n')) {
    const auto line = base::split(row, '|');
    if (line.size() != 8) continue;
    const bool is_default = line[0].ends_with('*');
    const auto name = line[0].substr(0, line[0].size() - (is_default ? 1 : 0));
    if (!is_usable(name, found)) continue;
    if (is_default) found.site.queue = name;
    const auto count = number_of(line[1]), cores = number_of(line[3]) * number_of(line[4]);
    if (cores > 0)
      found.site.threads_per_core = std::max(found.site.threads_per_core, number_of(line[2]) / cores);
    auto& known = nodes[name];
    known.all += count;
    const auto place = std::ranges::find(found.site.queues, name, &Queue::name);
    if (place == found.site.queues.end()) {
      found.site.queues.push_back(queue_of(name, line));
    } else {
      found.notes.push_back(format("{}: its nodes differ; the file describes the most common kind", name));
      if (count > known.most) *place = queue_of(name, line);
    }
    known.most = std::max(known.most, count);
  }
  for (auto& queue : found.site.queues)
    if (queue.max_nodes == 0) queue.max_nodes = nodes[queue.name].all;
  if (found.site.threads_per_core == 1) found.site.threads_per_core = 0;
  return found;
}

std::string as_yaml(const FoundSite& found) {
  std::string text =
      "# Proposed by lockstep site detect. It cannot detect whether jobs need an account, modules, file "
      "systems\n# or a number of cores per GPU (docs/how-to/sites.md).\n";
  for (const auto& note : found.notes) text += "# " + base::printable(note, 300) + "\n";
  const auto& site = found.site;
  text += format("scheduler: {}\n", site.scheduler);
  if (!site.queue.empty()) text += format("queue: {}\n", config::yaml_text(site.queue));
  if (site.threads_per_core > 0) text += format("threads_per_core: {}\n", site.threads_per_core);
  if (!site.queues.empty()) text += "queues:\n";
  for (const auto& queue : site.queues) {
    Words keys;
    for (const auto& [key, number] : {std::pair{"gpus_per_node", queue.gpus_per_node},
                                      {"cores_per_node", queue.cores_per_node},
                                      {"min_nodes", queue.min_nodes},
                                      {"max_nodes", queue.max_nodes}}) {
      if (number != (std::string_view(key) == "gpus_per_node" ? -1 : 0))
        keys.push_back(format("{}: {}", key, number));
    }
    if (queue.max_time.count() > 0) keys.push_back("max_time: " + config::duration_text(queue.max_time));
    text += format("  {}: {{{}}}\n", config::yaml_text(queue.name), base::join(keys, ", "));
  }
  return text;
}

std::string detect_site(const std::string& scheduler) {
  if (!scheduler.empty())
    check_scheduler(scheduler, "lockstep site detect", "use --scheduler slurm or --scheduler pbs");
  constexpr std::chrono::seconds kLimit{10};
  const auto run = real_commands(kLimit);
  Words silent;
  const auto ask = [&](const Words& command) -> std::optional<std::string> {
    auto answer = run(command);
    if (answer.good()) return answer.output;
    answer.errors = base::trimmed(answer.errors);
    answer.errors.erase(0, answer.errors.rfind('\n') + 1);
    if (answer.end != base::Answer::not_started)
      silent.push_back(trouble_of(base::join(command, " "), answer));
    return std::nullopt;
  };
  std::optional<FoundSite> found;
  const Words sinfo = {"sinfo", "-h", "-o", kSinfoFormat};
  if (const auto text = scheduler == "pbs" ? std::nullopt : ask(sinfo)) found = read_sinfo(*text);
  const auto queues = found || scheduler == "slurm" ? std::nullopt : ask({"qstat", "-Q", "-f"});
  if (queues) {
    if (find_command("pbsnodes").empty()) silent.emplace_back("pbsnodes is not installed here");
    found = read_pbs(*queues, ask({"qstat", "-B", "-f"}).value_or(""), ask({"pbsnodes", "-a"}).value_or(""));
  }
  if (!found)
    throw Error(scheduler.empty() ? "no scheduler answers here" : format("{} does not answer", scheduler),
                silent.empty() ? "neither sinfo nor qstat is on PATH" : base::join(silent, "; "),
                "run it on a login node, or start from: lockstep site show slurm");
  found->notes.insert(found->notes.end(), silent.begin(), silent.end());
  return as_yaml(*found);
}

}  // namespace lockstep::cluster
