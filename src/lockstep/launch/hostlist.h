#pragma once
// What schedulers list: the hosts of PBS's node file, Slurm's tasks of each node. Malformed lists are
// InputErrors.

#include <string>
#include <vector>

namespace lockstep::launch {

/// One host a line (one line an MPI rank); repeats are kept, blank lines are not.
std::vector<std::string> parse_node_file(const std::string& text);

/// "2(x2),1" -> 2 2 1, as in SLURM_STEP_TASKS_PER_NODE.
std::vector<int> parse_task_counts(const std::string& text);

/// Each host once, in the order of first appearance.
std::vector<std::string> unique_hosts(const std::vector<std::string>& hosts);

/// "n1" and "n1.cluster.org" are the same host.
bool same_host(const std::string& a, const std::string& b);

}  // namespace lockstep::launch
