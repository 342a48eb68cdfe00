#pragma once
// Who else had a node's processors while something was measured.

#include <string>
#include <vector>

#include "lockstep/parallel/team.h"

namespace lockstep::bench {

/// Processor time in seconds: of the node since it started, and of this process.
struct ProcessorTime {
  double all = 0, idle = 0, stolen = 0;  // zero where the kernel does not tell
  double own = 0;
};
ProcessorTime processor_time();
ProcessorTime operator-(const ProcessorTime& a, const ProcessorTime& b);

/// A rank's, while it measured.
struct RankTime {
  std::string host;
  ProcessorTime passed;
};

/// A line for each node whose processors others had, too much of them for a verdict.
std::vector<std::string> busy_nodes(const std::vector<RankTime>& ranks);

/// On some node. Collective.
bool has_more_ranks_than_cores(const Team& team);

}  // namespace lockstep::bench
