#pragma once
// `lockstep bench dp-vs-ddp`: the same work by DataParallel, by its variant with the loss inside, and by DDP.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct DpVsDdp {
  std::string config = "configs/mnist.yaml";
  std::vector<std::string> sets;
  int64_t devices = 2;
  int64_t steps = 20;   // timed, of one run
  int64_t repeats = 3;  // runs of each way, taking turns
  std::string out;      // an HTML page; empty = none
};

/// Runs all three, compares their losses step by step, prints the result. Error where the losses differ by
/// more than rounding.
void dp_vs_ddp(const DpVsDdp& wanted);

/// In one process of a way: trains, measures, and returns the result, or its error, as text.
std::string dp_vs_ddp_part(const std::string& way, const DpVsDdp& wanted);

}  // namespace lockstep::bench
