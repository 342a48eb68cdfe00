#pragma once
// What `lockstep bench overlap` found, in words, tables and plots.

#include <string>
#include <vector>

#include "tools/bench/curves.h"
#include "tools/bench/overlap.h"

namespace lockstep::bench {

/// A method's step: how long it took, how long of that the exchange was at work, and how long there was
/// nothing else to do.
struct Timing {
  std::string name;
  double seconds;
  double busy;
  double shows;
};

struct OverlapFound {
  struct Under {
    double latency, bandwidth;
    std::vector<Timing> timings;  // computing alone, after backward, DDP's buckets, then from small to large
  };
  OverlapBench asked;
  int world;
  std::string algorithm, task;
  double megabytes;  // of gradients
  std::vector<Under> networks = {};
};

/// A row for each method: the step, the exposed communication, and what is hidden behind computing.
Table table_of(const std::vector<Timing>& timings);

/// On standard output, and into the file that was asked for.
void tell(const OverlapFound& found);

}  // namespace lockstep::bench
