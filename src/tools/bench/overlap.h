#pragma once
// `lockstep bench overlap`: one training, its gradients exchanged after backward, in buckets, one by one.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/page.h"
#include "trainer/setup/command.h"

namespace lockstep::bench {

struct OverlapBench {
  train::Command command;    // the config that is trained, on CPUs over an algorithm of comm/algorithms
  double latency = 200e-6;   // of the slow network, in seconds
  double bandwidth = 125e6;  // bytes a second of a rank's line
  int64_t steps = 8;         // that are timed, of each way
  std::string out;           // an HTML page; empty = none
};

/// InputError where that cannot be measured anywhere.
void check(const OverlapBench& bench);

/// Joins the job, measures, and prints the result on rank 0. Returns the exit status.
int overlap(const OverlapBench& bench);

/// A method's step in seconds: all of it, how long the exchange was at work, and how much of that came after
/// the last gradient, when there was nothing else to do.
struct Timing {
  std::string name;
  double seconds, busy, shows;
};
report::Table table_of(const std::vector<Timing>& timings);

}  // namespace lockstep::bench
