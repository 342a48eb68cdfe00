#pragma once
// The benches of `lockstep bench`: what each is asked for. check() throws InputError where that cannot be
// measured anywhere. The bench itself joins the job, measures, verifies what it times, prints the result on
// rank 0, and returns the exit status.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/setup/command.h"

namespace lockstep::bench {

/// `lockstep bench allreduce`: every way to sum over the ranks, beside its formula.
struct AllReduceBench {
  std::string algorithm = "all";  // or one of comm/algorithms
  std::string backend = "gloo";   // that sends the algorithms' messages: gloo or mpi
  std::vector<int64_t> sizes;     // bytes
  double latency = 0;             // seconds that each message takes longer
  double bandwidth = 0;           // bytes a second of a rank's connection; 0 = no limit
  int64_t rounds = 7;
  std::string out;  // an HTML page; empty = none
  std::string launcher = "auto";
  std::string program;             // version and commit
  std::vector<std::string> words;  // the command line, the same on all ranks
};
void check(const AllReduceBench& bench);
int all_reduce(const AllReduceBench& bench);

/// `lockstep bench overlap`: one training, its gradients exchanged after backward, in buckets, one by one.
struct OverlapBench {
  train::Command command;    // the config that is trained, on CPUs over an algorithm of comm/algorithms
  double latency = 200e-6;   // of the slow network, in seconds
  double bandwidth = 125e6;  // bytes a second of a rank's connection
  int64_t steps = 8;         // that are timed, of each method
  std::string out;           // an HTML page; empty = none
};
void check(const OverlapBench& bench);
int overlap(const OverlapBench& bench);

/// `lockstep bench step`: where the time of a training's step goes, and how far it is from what the machine
/// can do. Leaves no run behind.
struct StepBench {
  train::Command command;        // the config that is trained
  std::optional<int64_t> steps;  // that are timed; else as many as take a few seconds
  bool json = false;             // instead of the tables
  std::string out;               // an HTML page; empty = none
};
void check(const StepBench& bench);
int step(const StepBench& bench);

/// `lockstep bench dp-vs-ddp`: the same work by DataParallel, by its variant with the loss inside, and by
/// DDP. Starts its own processes. Error where their losses differ by more than rounding.
struct DpVsDdpBench {
  std::string config = "configs/mnist.yaml";
  std::vector<std::string> sets;
  int64_t devices = 2;
  int64_t steps = 20;                   // timed, of one run
  int64_t repeats = 3;                  // runs of each way, taking turns
  std::string out;                      // an HTML page; empty = none
  std::vector<std::string> words = {};  // the command line, for its processes
};
void dp_vs_ddp(const DpVsDdpBench& wanted);
/// In one process of a way: trains, measures, and returns the result, or its error, as text.
std::string dp_vs_ddp_part(const std::string& way, const DpVsDdpBench& wanted);

}  // namespace lockstep::bench
