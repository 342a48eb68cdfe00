#pragma once
// What a node's processors can do, and who else used them while something was measured.

#include <string>
#include <vector>

#include "lockstep/kernels/level.h"
#include "lockstep/parallel/team.h"

namespace lockstep::bench {

/// What a rank's processors can do at most while all ranks use them.
struct Peak {
  double flops = 0;  // a second, fp32 multiply-adds, on as many threads as libtorch has
  double bytes = 0;  // a second, in a sweep over memory; 0 where there was not enough memory
};
/// In a third of a second. Collective, so that what ranks share they share.
Peak measure_peak(const Team& team);
/// The loops of measure_peak() for a level of processors: `rounds` times as many multiplications and
/// additions as the processor overlaps; returns their number.
double multiply_and_add(int64_t rounds, kernels::SimdLevel level);
/// a = b + 3 c
void triad(float* a, const float* b, const float* c, int64_t count, kernels::SimdLevel level);
/// Numbers in a vector of this level.
int lanes_of(kernels::SimdLevel level);
/// Of the vectors of measure_peak().
int vector_bits();
/// The largest cache of this processor, in bytes.
int64_t cache_bytes();

/// Processor time in seconds: of the node since it started, and of this process.
struct ProcessorTime {
  double all = 0, idle = 0, stolen = 0;  // zero where the kernel does not report them
  double own = 0;
};
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
