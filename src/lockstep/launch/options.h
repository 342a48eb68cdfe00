#pragma once
// How a rank joins its job: launcher, device, backend, timeouts.

#include <chrono>
#include <string>

namespace lockstep {

/// The section `launch` of a config, and the options of a Session. The defaults work under mpirun, srun and
/// torchrun.
struct LaunchOptions {
  std::string launcher = "auto";   // auto, a name that `lockstep whoami` shows, or none = alone
  std::string backend = "auto";    // auto | nccl | shared | gloo | mpi
  std::string allreduce = "auto";  // auto = the backend's own, or an algorithm of comm/algorithms
  std::string device = "auto";     // auto | cpu | cuda
  double latency_us = 0;           // simulated slow network: added to each message
  double bandwidth_gbit = 0;       // simulated bandwidth; 0 = unlimited
  std::chrono::milliseconds join_timeout{60'000};  // for every rank to arrive
  std::chrono::milliseconds timeout{600'000};      // for one collective

  /// Whether an algorithm of comm/algorithms computes sums.
  bool has_algorithm() const { return allreduce != "auto"; }
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace lockstep
