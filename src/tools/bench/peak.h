#pragma once
// What a rank's processors can do at most while all ranks ask them: fused multiply-adds in registers, a sweep
// over memory.

#include "lockstep/parallel/team.h"

namespace lockstep::bench {

struct Peak {
  double flops = 0;  // a second, fp32, on as many threads as libtorch has
  double bytes = 0;  // a second; 0 where no memory was to be had
};

/// In a third of a second. Collective, so that what ranks share they share.
Peak measure_peak(const Team& team);

/// Of the vectors of measure_peak().
int vector_bits();

/// The largest cache of this processor, in bytes.
int64_t cache_bytes();

}  // namespace lockstep::bench
