#pragma once
// `lockstep bench overlap`: one training, its gradients exchanged after backward, in buckets, one by one.

#include <cstdint>
#include <string>

#include "trainer/setup/command.h"

namespace lockstep::bench {

struct OverlapBench {
  train::Command command;    // the config that is trained, on CPUs over an algorithm of comm/algorithms
  double latency = 200e-6;   // of the slow network, in seconds
  double bandwidth = 125e6;  // bytes a second of a rank's line
  int64_t steps = 8;         // that are timed, of each way
  std::string out;           // an HTML page, or an SVG of the bucket sweep; empty = none
};

/// InputError where that cannot be measured anywhere.
void check(const OverlapBench& bench);

/// Joins the job, measures, and tells it on rank 0's standard output. Returns the exit status.
int overlap(const OverlapBench& bench);

}  // namespace lockstep::bench
