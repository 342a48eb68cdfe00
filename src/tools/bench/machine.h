#pragma once
// What a node's processors can do, and who else used them while something was measured.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/parallel/team.h"

namespace lockstep::bench {

/// Operations a second of this rank in large fp32 matrix products of libtorch, while all ranks compute them.
/// Takes a fifth of a second. Collective.
double measure_peak(const Team& team);

/// Processor time in seconds: of the node since it started, and of this process.
struct ProcessorTime {
  double all = 0, idle = 0, stolen = 0;  // zero where the kernel does not report them
  double own = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessorTime, all, idle, stolen, own)
ProcessorTime processor_time();
ProcessorTime operator-(const ProcessorTime& a, const ProcessorTime& b);

/// A rank's, while it measured.
struct RankTime {
  std::string host;
  ProcessorTime passed;
};
/// A line for each node that other processes used too much for a reliable measurement.
std::vector<std::string> busy_nodes(const std::vector<RankTime>& ranks);

/// On some node. Collective.
bool has_more_ranks_than_cores(const Team& team);

}  // namespace lockstep::bench
