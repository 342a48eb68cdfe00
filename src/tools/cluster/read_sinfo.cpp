// What sinfo says of the partitions: one line a partition and kind of node.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/words.h"
#include "tools/cluster/detect.h"
#include "tools/cluster/site_keys.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {

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

}  // namespace lockstep::cluster
