// What qstat and pbsnodes say of PBS's queues and nodes.
#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/base/format.h"
#include "lockstep/base/words.h"
#include "tools/cluster/detect.h"
#include "tools/cluster/site_keys.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {
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

}  // namespace lockstep::cluster
