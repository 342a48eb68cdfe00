#include "tools/cluster/detect.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "tools/cluster/look.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {

// What qstat and pbsnodes say of PBS's queues and nodes.

namespace {

using Fields = std::map<std::string, std::string>;

struct Block {
  std::string name;
  Fields fields;
};

struct NodeKind {
  int64_t cores = 0, gpus = 0;
  auto operator<=>(const NodeKind&) const = default;
};

// Blocks of `    key = value` below a line that names them: "Queue: workq", "Server: pbs", or a node's name.
// A line that begins with a tab continues the one before.
std::vector<Block> blocks_of(const std::string& text) {
  std::vector<Block> blocks;
  std::string* last = nullptr;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('\t') && last) {
      *last += base::trimmed(line);
    } else if (!line.empty() && line[0] != ' ' && line[0] != '\t') {
      const size_t colon = line.find(": ");
      blocks.push_back({base::trimmed(colon == std::string::npos ? line : line.substr(colon + 2)), {}});
      last = nullptr;
    } else if (equals != std::string::npos && !blocks.empty()) {
      last = &(blocks.back().fields[base::trimmed(line.substr(0, equals))] =
                   base::trimmed(line.substr(equals + 3)));
    }
  }
  return blocks;
}

std::string field(const Block& block, const std::string& key) {
  const auto found = block.fields.find(key);
  return found == block.fields.end() ? "" : found->second;
}

int64_t number_of(const Block& block, const std::string& key) {
  return config::parse_int(field(block, key)).value_or(0);
}

// "48:00:00"
std::chrono::milliseconds walltime_of(const std::string& text) {
  int64_t seconds = 0;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ':');)
    seconds = seconds * 60 + std::strtoll(part.c_str(), nullptr, 10);
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, 315'360'000));
}

bool takes_jobs(const Block& queue) {
  return field(queue, "enabled") != "False" && field(queue, "from_route_only") != "True";
}

// the kind that most nodes are of
NodeKind common(const std::vector<Block>& blocks, std::vector<std::string>& notes) {
  std::map<NodeKind, int> kinds;
  for (const auto& block : blocks)
    ++kinds[{number_of(block, "resources_available.ncpus"), number_of(block, "resources_available.ngpus")}];
  if (kinds.empty()) return {};
  for (const auto& [node, count] : kinds)
    notes.push_back(format("{} node(s) of {} ncpus and {} ngpus", count, node.cores, node.gpus));
  if (kinds.size() > 1)
    notes.emplace_back(
        "nodes differ, and PBS does not say which queue has which: see to gpus_per_node below");
  const auto more = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::max_element(kinds.begin(), kinds.end(), more)->first;
}

Queue queue_of_block(const Block& block, const NodeKind& node, bool nodes_known) {
  Queue queue;
  queue.name = block.name;
  if (nodes_known) queue.gpus_per_node = node.gpus;
  queue.cores_per_node = node.cores;
  queue.min_nodes = number_of(block, "resources_min.nodect");
  queue.max_nodes = number_of(block, "resources_max.nodect");
  queue.max_time = walltime_of(field(block, "resources_max.walltime"));
  return queue;
}

}  // namespace

FoundSite read_pbs(const std::string& queues, const std::string& server, const std::string& nodes) {
  FoundSite found;
  found.site.scheduler = "pbs";
  const auto node_blocks = blocks_of(nodes);
  const auto node = common(node_blocks, found.notes);
  for (const auto& block : blocks_of(queues)) {
    if (!takes_jobs(block)) continue;
    if (is_directive_word(block.name))
      found.site.queues.push_back(queue_of_block(block, node, !node_blocks.empty()));
    else
      found.notes.push_back("a queue was left out, whose name is no word: " + block.name);
  }
  const auto servers = blocks_of(server);
  const auto wanted = servers.empty() ? "" : field(servers[0], "default_queue");
  for (auto& queue : found.site.queues) {
    if (queue.name == wanted) found.site.queue = wanted;
    if (queue.max_nodes == 0) queue.max_nodes = std::ssize(node_blocks);  // no limit but what is there
  }
  return found;
}

// What sinfo says of the partitions: one line a partition and kind of node.

// partition (* = the default), nodes, CPUs, sockets, cores a socket, gres, longest job, sizes of a job
const char* const kSinfoFormat = "%P|%D|%c|%X|%Y|%G|%l|%s";

namespace {

struct Line {
  std::string partition, gres, time, size;
  int64_t nodes = 0, cpus = 0, cores = 0;
};

// "32+": at least 32
int64_t leading_number(const std::string& text) {
  return config::parse_int(text.substr(0, text.find_first_not_of("0123456789"))).value_or(0);
}

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (const auto& row : base::split(text, '\n')) {
    const auto parts = base::split(row, '|');
    if (parts.size() != 8) continue;
    lines.push_back({.partition = parts[0],
                     .gres = parts[5],
                     .time = parts[6],
                     .size = parts[7],
                     .nodes = leading_number(parts[1]),
                     .cpus = leading_number(parts[2]),
                     .cores = leading_number(parts[3]) * leading_number(parts[4])});
  }
  return lines;
}

std::string partition_of(const Line& line) {
  return line.partition.ends_with('*') ? line.partition.substr(0, line.partition.size() - 1) : line.partition;
}

// "3-00:00:00", "30:00", "infinite"
std::chrono::milliseconds time_limit_of(const std::string& text) {
  const size_t dash = text.find('-');
  int64_t seconds = 0;
  const auto clock = base::split(dash == std::string::npos ? text : text.substr(dash + 1), ':');
  for (const auto& part : clock) seconds = seconds * 60 + leading_number(part);
  if (clock.size() == 1) seconds *= 60;  // a number alone is minutes
  if (dash != std::string::npos) seconds += leading_number(text.substr(0, dash)) * 86400;
  return std::chrono::seconds(seconds);
}

// "gpu:a100:4(S:0-1),nvme:1": 4
int64_t gpus_of(const std::string& gres) {
  int64_t gpus = 0;
  for (const auto& one : base::split(gres, ',')) {
    const auto parts = base::split(one.substr(0, one.find('(')), ':');
    if (parts.size() > 1 && parts[0] == "gpu") gpus += leading_number(parts.back());
  }
  return gpus;
}

// by the names of AMD's and Intel's
bool are_of_others(const std::string& gres) {
  return gres.find("gpu:mi") != std::string::npos || gres.find("gpu:amd") != std::string::npos ||
         gres.find("gpu:pvc") != std::string::npos || gres.find("gpu:intel") != std::string::npos;
}

// "1-4" or "1-infinite"
int64_t most_nodes(const std::string& size) {
  const size_t dash = size.find('-');
  return dash == std::string::npos ? leading_number(size) : leading_number(size.substr(dash + 1));
}

Queue queue_of_partition(const std::string& name, const Line& line, std::vector<std::string>& notes) {
  Queue queue;
  queue.name = name;
  queue.gpus_per_node = gpus_of(line.gres);
  if (queue.gpus_per_node > 0 && are_of_others(line.gres)) {
    notes.push_back(format("{}: its GPUs ({}) are none that lockstep can use", name, line.gres));
    queue.gpus_per_node = 0;
  }
  queue.cores_per_node = line.cores > 0 ? line.cores : line.cpus;
  queue.max_nodes = most_nodes(line.size);
  queue.max_time = time_limit_of(line.time);
  return queue;
}

// "1-infinite" is as many as the partition has
void limit_to_what_is_there(Queue& queue, const std::vector<Line>& lines) {
  if (queue.max_nodes > 0) return;
  for (const auto& line : lines)
    if (partition_of(line) == queue.name) queue.max_nodes += line.nodes;
}

void add_partition(FoundSite& found, const Line& line, std::vector<int64_t>& nodes) {
  const bool is_default = line.partition.ends_with('*');
  const auto name = partition_of(line);
  if (!is_directive_word(name)) {
    found.notes.push_back(format("a partition was left out, whose name is no word: {}", name));
    return;
  }
  if (is_default) found.site.queue = name;
  auto& queues = found.site.queues;
  const auto known =
      std::find_if(queues.begin(), queues.end(), [&](const Queue& q) { return q.name == name; });
  if (known == queues.end()) {
    queues.push_back(queue_of_partition(name, line, found.notes));
    nodes.push_back(line.nodes);
    return;
  }
  found.notes.push_back(format("{}: its nodes differ; what most of them have is listed below", name));
  auto& most = nodes[static_cast<size_t>(known - queues.begin())];
  if (line.nodes <= most) return;
  most = line.nodes;
  *known = queue_of_partition(name, line, found.notes);
}

}  // namespace

FoundSite read_sinfo(const std::string& text) {
  FoundSite found;
  found.site.scheduler = "slurm";
  std::vector<int64_t> nodes;
  int64_t threads = 0;
  const auto lines = lines_of(text);
  for (const auto& line : lines) {
    add_partition(found, line, nodes);
    if (line.cores > 0) threads = std::max(threads, line.cpus / line.cores);
  }
  for (auto& queue : found.site.queues) limit_to_what_is_there(queue, lines);
  if (threads > 1) found.site.threads_per_core = threads;
  return found;
}

namespace {

constexpr std::chrono::seconds kQueryPatience{10};

// Asks, and notes what did not answer.
std::optional<std::string> ask_and_note(const std::vector<std::string>& command,
                                        std::vector<std::string>& silent) {
  auto argv = command;
  argv[0] = find_command(command[0]);
  if (argv[0].empty()) return std::nullopt;
  const auto answer = base::ask({.argv = argv, .without = unheard_by_queries()}, kQueryPatience);
  if (answer.good()) return answer.output;
  const auto said = base::trimmed(answer.errors);
  silent.push_back(format("{} failed, or gave no answer in {} s{}", base::join(command, " "),
                          kQueryPatience.count(), said.empty() ? "" : ": " + base::printable(said, 200)));
  return std::nullopt;
}

std::string asked_as_text(const std::vector<std::string>& command, std::vector<std::string>& silent) {
  return ask_and_note(command, silent).value_or("");
}

std::optional<FoundSite> detect_slurm(std::vector<std::string>& silent) {
  const auto text = ask_and_note({"sinfo", "-h", "-o", kSinfoFormat}, silent);
  if (!text) return std::nullopt;
  auto found = read_sinfo(*text);
  std::istringstream config(asked_as_text({"scontrol", "show", "config"}, silent));
  for (std::string line; std::getline(config, line);) {
    if (line.starts_with("MpiDefault") || line.starts_with("AccountingStorageEnforce"))
      found.notes.push_back("slurm.conf: " + line);
  }
  return found;
}

std::optional<FoundSite> detect_pbs(std::vector<std::string>& silent) {
  const auto queues = ask_and_note({"qstat", "-Q", "-f"}, silent);
  if (!queues) return std::nullopt;
  if (find_command("pbsnodes").empty()) silent.emplace_back("there is no pbsnodes here");
  return read_pbs(*queues, asked_as_text({"qstat", "-B", "-f"}, silent),
                  asked_as_text({"pbsnodes", "-a"}, silent));
}

struct Detected {
  const char* name;
  const char* command;
  std::optional<FoundSite> (*detect)(std::vector<std::string>&);
};
constexpr Detected kDetected[] = {{"slurm", "sinfo", detect_slurm}, {"pbs", "qstat", detect_pbs}};

void note_software(FoundSite& found, std::vector<std::string>& silent) {
  for (const char* launcher : {"mpirun", "mpiexec"}) {
    const auto version = asked_as_text({launcher, "--version"}, silent);
    if (!version.empty())
      found.notes.push_back(format("{}: {}", launcher, version.substr(0, version.find('\n'))));
  }
  const char* modules = std::getenv("LOADEDMODULES");
  if (modules && *modules)
    found.notes.push_back(
        format("modules that are loaded here; name under `modules` those that a job needs: {}", modules));
}

}  // namespace

std::string detect_site(const std::string& scheduler) {
  const auto row = std::ranges::find(kDetected, scheduler, &Detected::name);
  if (!scheduler.empty() && row == std::end(kDetected))
    throw InputError(format("there is no scheduler '{}' to ask", base::printable(scheduler)),
                     "lockstep site detect", "use --scheduler slurm or --scheduler pbs");
  std::vector<std::string> silent;
  std::optional<FoundSite> found;
  for (const auto& one : kDetected) {
    if (!scheduler.empty() && scheduler != one.name) continue;
    if (!found) {
      found = one.detect(silent);
    } else if (!find_command(one.command).empty()) {
      found->notes.push_back(
          format("{} is here, too: lockstep site detect --scheduler {}", one.command, one.name));
    }
  }
  if (!found)
    throw Error(
        scheduler.empty() ? "no scheduler answers here" : format("{} does not answer here", scheduler),
        silent.empty() ? "neither sinfo nor qstat is on the PATH" : base::join(silent, "; "),
        "run it on a login node of the cluster, or begin with  lockstep site show slurm");
  note_software(*found, silent);
  found->notes.insert(found->notes.end(), silent.begin(), silent.end());
  return as_yaml(*found);
}

}  // namespace lockstep::cluster
