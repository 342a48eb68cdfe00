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

struct InjectedFault;  // a row of the table in provoke.cpp

class Provocation {
 public:
  /// What the settings ask for; most ask for nothing. InputError, alike on all ranks, where there are too few
  /// ranks.
  Provocation(const Settings& settings, const Team& team);

  /// The names, in the order of the choices of train.provoke.
  static std::vector<std::string> names();
  /// Before the ranks meet: a run of its own name, and the settings under which the fault shows.
  static void prepare(config::Loaded& loaded);
  /// What is left of --resume: a provoked run begins again.
  static std::string resume(const Settings& settings, const std::string& asked);
  /// The model as the fault wants it, which is what its checkpoints hold.
  static std::shared_ptr<Net> change(const Settings& settings, std::shared_ptr<Net> net);

  void after_step(int64_t step) const;
  /// The epoch's loss as it is shown.
  double shown_loss(double mean, const LossTrace& losses) const;

 private:
  const Settings& settings_;
  const Team& team_;
  const InjectedFault* fault_;  // nullptr = none
};

}  // namespace lockstep::train
