#pragma once
// `lockstep bench dp-vs-ddp`: the same work by DataParallel, by its variant with the loss inside, and by DDP.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/report/page.h"

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

inline const std::vector<std::string> kWays = {"dp", "dp, loss inside", "ddp"};
inline const std::vector<std::string> kWide = {"wide",
                                               "wide, loss inside"};  // peak memory where outputs are wide

/// What one process of a way found.
struct DpVsDdpFound {
  std::vector<double> losses;   // of the whole batch, a step
  std::vector<double> seconds;  // a step
  std::vector<double> peaks;    // bytes, a device
  int64_t batch = 0;            // samples of a step
};

struct DpVsDdpResults {
  std::map<std::string, std::vector<double>> seconds;  // a step, a run
  std::map<std::string, DpVsDdpFound> last;
};
/// `facts`: a line that says what was run.
report::Page page_of(const DpVsDdpResults& results, const std::string& facts);

/// In one process of a way: trains, measures, and returns the result, or its error, as text.
std::string outcome_of(const std::string& way, const DpVsDdp& wanted);
DpVsDdpFound read_outcome(const std::string& text);

}  // namespace lockstep::bench
