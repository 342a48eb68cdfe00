#pragma once
// Host lists, both directions: Slurm's bracket forms and PBS's node files. Malformed lists are InputErrors.

#include <string>
#include <vector>

namespace lockstep::launch {

/// "n[01-03,7]" -> n01 n02 n03 n7; several brackets and suffixes too. Refuses more than a million hosts.
std::vector<std::string> expand_hostlist(const std::string& text);

/// The shortest bracket form that expand_hostlist turns back into the same hosts in the same order.
std::string compress_hostlist(const std::vector<std::string>& hosts);

/// One host a line (one line an MPI rank); repeats are kept, blank lines are not.
std::vector<std::string> parse_node_file(const std::string& text);
std::string write_node_file(const std::vector<std::string>& hosts);

/// "2(x2),1" -> 2 2 1, as in SLURM_STEP_TASKS_PER_NODE.
std::vector<int> parse_task_counts(const std::string& text);

/// Each host once, in the order of first appearance.
std::vector<std::string> unique_hosts(const std::vector<std::string>& hosts);

/// "n1" and "n1.cluster.org" are the same host.
bool same_host(const std::string& a, const std::string& b);

}  // namespace lockstep::launch
