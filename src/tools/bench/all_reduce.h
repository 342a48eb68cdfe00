#pragma once
// `lockstep bench allreduce`: every way to sum over the ranks, checked, timed, and beside its formula.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct AllReduceBench {
  std::string algorithm = "all";  // or one of comm/algorithms
  std::string backend = "gloo";   // whose connections carry the algorithms: gloo or mpi
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

}  // namespace lockstep::bench
