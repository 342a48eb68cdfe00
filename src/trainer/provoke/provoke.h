#pragma once
// Injected faults (train.provoke), each a real one: for tests and for the course.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/load.h"
#include "trainer/observe/loss_trace.h"

namespace lockstep::train {

struct InjectedFault {
  static constexpr int64_t kStep = 3;  // after which a collective goes wrong

  std::string name;
  std::string what;                                                            // happens
  int ranks = 2;                                                               // that it needs
  void (*prepare)(config::Loaded&) = nullptr;                                  // before the ranks meet
  std::shared_ptr<Net> (*change)(std::shared_ptr<Net>) = nullptr;              // the model
  void (*after_step)(const Team&, const Settings&) = nullptr;                  // after step kStep
  double (*shown_loss)(const Team&, double mean, const LossTrace&) = nullptr;  // of an epoch
};

/// In the order of the choices of train.provoke.
extern const std::vector<InjectedFault> kInjectedFaults;

/// What the settings ask for; null where they ask for none.
const InjectedFault* injected_fault(const Settings& settings);

/// Gives the run a name of its own, and the settings under which the fault shows.
void prepare_fault(config::Loaded& loaded);

/// InputError, alike on all ranks, where there are too few of them.
void check_fault(const Settings& settings, const Team& team);

}  // namespace lockstep::train
