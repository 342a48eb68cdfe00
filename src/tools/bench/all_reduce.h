#pragma once
// `lockstep bench allreduce`: every way to sum over the ranks, checked, timed, and beside its formula.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/parallel/team.h"

namespace lockstep::bench {

struct AllReduceBench {
  std::string algorithm = "all";  // or one of comm/algorithms
  std::string backend = "gloo";   // that sends the algorithms' messages: gloo or mpi
  std::vector<int64_t> sizes;     // bytes
  double latency = 0;             // seconds that each message takes longer
  double bandwidth = 0;           // bytes a second of a rank's connection; 0 = no limit
  int64_t rounds = 7;
  std::string out;  // an HTML page; empty = none
  std::string launcher = "auto";
  std::string program;  // version and commit
};

/// InputError where that cannot be measured anywhere.
void check(const AllReduceBench& bench);

/// Joins the job, measures, and prints the result on rank 0. Returns the exit status.
int all_reduce(const AllReduceBench& bench);

/// A way to sum over the ranks.
struct Way {
  std::string name;
  std::function<void(at::Tensor&)> sum;  // in place; returns when it is done
  at::Device device = at::kCPU;
  const Algorithm* algorithm = nullptr;  // whose formula is printed beside it
  ProcessGroup shares = {};  // if set: the tensors lie in this group's shared memory, as DDP's buckets
};

/// Seconds for `bytes` of floats, way by way: the median over the rounds of the slowest rank's time.
/// `line_up`, a barrier, comes before each turn. Error, on all ranks alike, if a sum is wrong. Collective.
std::vector<double> measured(const Team& team, const std::vector<Way>& ways, int64_t bytes, int rounds,
                             const std::function<void()>& line_up);

struct TimeCurve {
  std::string name;
  std::vector<double> seconds;  // one for each size
  bool is_model = false;
  int look = -1;  // colour: the same for a measured curve and its model
};
/// Which of the curves is the fastest, by size: "all_to_all up to 4 KiB, then ring".
std::string crossovers(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// So few that their lines can be told apart: the fastest for the most bytes, in the curves' order.
constexpr size_t kFewCurves = 5;
std::vector<TimeCurve> fastest_few(const std::vector<TimeCurve>& curves);

}  // namespace lockstep::bench
