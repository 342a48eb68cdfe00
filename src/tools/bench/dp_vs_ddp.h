#pragma once
// `lockstep bench dp-vs-ddp`: the same work by DataParallel, by its variant with the loss inside, and by DDP.

#include <chrono>
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
  std::string out;      // an HTML page, or an SVG of the steps' bars; empty = none
};

/// Runs all three, compares their losses step by step, prints the table and the plots. Error where the losses
/// differ by more than rounding.
void dp_vs_ddp(const DpVsDdp& wanted);

/// What one way of a run found; in one process of it.
struct DpVsDdpFound {
  std::vector<double> losses;   // of the whole batch, a step
  std::vector<double> seconds;  // a step
  std::vector<double> peaks;    // bytes, a device
  int64_t batch = 0;            // samples of a step
};

/// One process of a way, named as in the table: trains and measures.
DpVsDdpFound train_part(const std::string& way, const DpVsDdp& wanted);
/// The peak memory of each device where the outputs are wide, with and without the loss inside.
DpVsDdpFound wide_head(bool loss_inside, int64_t devices);

/// On their way from one process to another; an error travels, too.
std::string outcome_of(const std::string& way, const DpVsDdp& wanted);
DpVsDdpFound read_outcome(const std::string& text);

}  // namespace lockstep::bench
