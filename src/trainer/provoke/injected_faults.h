#pragma once
// The faults that can be injected, a row each: what happens, under which settings, at which moment.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/load.h"
#include "trainer/observe/loss_trace.h"

namespace lockstep::train {

constexpr int64_t kMoment = 3;  // the optimiser step after which a collective goes wrong

struct InjectedFault {
  std::string name;
  std::string what;  // happens, for the warning at the start
  int ranks = 2;     // that it takes
  void (*prepare)(config::Loaded&) = nullptr;
  std::shared_ptr<Net> (*change)(std::shared_ptr<Net>) = nullptr;
  void (*after_step)(const Team&, const Settings&) = nullptr;  // after step kMoment
  double (*shown_loss)(const Team&, double mean, const LossTrace&) = nullptr;
};

/// In the order of the choices of train.provoke.
const std::vector<InjectedFault>& injected_faults();

}  // namespace lockstep::train
