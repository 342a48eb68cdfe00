#pragma once
// What the program tells a Session beside its options.

#include <functional>

#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/options.h"

namespace lockstep::parallel {

struct Joining {
  LaunchOptions options;
  bool grouped = true;        // false: no process group, each process is alone
  launch::OwnGpus gpus = {};  // of each rank
  int threads = 0;            // of each rank; 0 = its share of the cores
  /// What has to be the same on all ranks. Called once the device is chosen and before libtorch is
  /// touched; an Error of it is thrown on all ranks.
  std::function<comm::Facts(const launch::DeviceChoice&)> facts;
};

}  // namespace lockstep::parallel
