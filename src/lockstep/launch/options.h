#pragma once
// How a rank joins its job: launcher, device, backend, timeouts.

#include <chrono>
#include <string>

namespace lockstep {

/// A config's section `launch`, and a Session's options. The defaults work under mpirun, srun and torchrun.
struct LaunchOptions {
  std::string launcher = "auto";   // auto, a name that `lockstep whoami` shows, or none = a single process
  std::string backend = "auto";    // auto | nccl | shared | gloo | mpi
  std::string allreduce = "auto";  // auto = the backend's own, or an algorithm of comm/algorithms
  std::string device = "auto";     // auto | cpu | cuda
  double latency_us = 0;           // simulated slow network: time added to each message
  double bandwidth_gbit = 0;       // simulated bandwidth; 0 = unlimited
  std::chrono::milliseconds join_timeout{60'000};  // how long to wait for all ranks to join
  std::chrono::milliseconds timeout{600'000};      // how long one collective may take

  /// Whether sums use an algorithm of comm/algorithms.
  bool has_algorithm() const { return allreduce != "auto"; }
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace lockstep
