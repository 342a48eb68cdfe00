#pragma once
// How a rank joins its job: what starts it, what it computes on, how it talks, how long it waits.

#include <chrono>
#include <string>

namespace lockstep {

/// The section `launch` of a config, and what a Session opens. The defaults suit mpirun, srun and torchrun
/// alike.
struct LaunchOptions {
  std::string launcher = "auto";                   // auto, or what `lockstep whoami` calls it; none = alone
  std::string backend = "auto";                    // auto | nccl | gloo | mpi
  std::string device = "auto";                     // auto | cpu | cuda
  std::chrono::milliseconds join_timeout{60'000};  // for every rank to arrive
  std::chrono::milliseconds timeout{600'000};      // for one collective

  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace lockstep
