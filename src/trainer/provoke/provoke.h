#pragma once
// Injected faults (train.provoke), each a real one: what a learner reads about, seen once.

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/load.h"
#include "trainer/observe/loss_trace.h"

namespace lockstep::train {

struct InjectedFault;  // a row of the table in injected_faults.h

class Provocation {
 public:
  /// What the settings ask for; most ask for nothing. InputError, alike on all ranks, where it cannot be
  /// made.
  Provocation(const Settings& settings, const Team& team);

  /// Before the ranks meet: a run of its own name, and the settings under which the fault shows.
  static void prepare(config::Loaded& loaded);
  /// What is left of --resume: a provoked run begins again.
  static std::string resume(const Settings& settings, const std::string& asked);

  /// InputError where the run's folder is a provoked run's.
  static void refuse_folder(const std::string& folder);

  /// The model as the fault wants it, which is what its checkpoints hold.
  static std::shared_ptr<Net> change(const Settings& settings, std::shared_ptr<Net> net);
  void after_step(int64_t step) const;
  /// The epoch's loss as it is shown.
  double shown_loss(double mean, const LossTrace& losses) const;

 private:
  const Settings& settings_;
  const Team& team_;
  const InjectedFault* injected_;  // nullptr = none
};

}  // namespace lockstep::train
