#pragma once
// How a rank joins its job: what starts it, what it computes on, how it talks, how long it waits.

#include <chrono>
#include <string>

namespace lockstep {

/// The section `launch` of a config, and what a Session opens. The defaults suit mpirun, srun and torchrun
/// alike.
struct LaunchOptions {
  std::string launcher = "auto";   // auto, or what `lockstep whoami` calls it; none = alone
  std::string backend = "auto";    // auto | nccl | shared | gloo | mpi
  std::string allreduce = "auto";  // auto = the backend's own, or an algorithm of comm/algorithms
  std::string device = "auto";     // auto | cpu | cuda
  double latency_us = 0;           // simulated slow network: each message takes so much longer ...
  double bandwidth_gbit = 0;       // ... and its bytes so long; 0 = as fast as they go
  std::chrono::milliseconds join_timeout{60'000};  // for every rank to arrive
  std::chrono::milliseconds timeout{600'000};      // for one collective

  /// Sums are an algorithm's of comm/algorithms.
  bool has_algorithm() const { return allreduce != "auto"; }
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace lockstep
