#pragma once
// Where an epoch's samples come from: a data set, or a round of acting before each epoch (acting.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/models/net.h"
#include "trainer/setup/setup.h"
#include "trainer/step/feed.h"
#include "trainer/step/measured.h"

namespace lockstep::train {

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// An epoch's, of all ranks together.
  virtual int64_t samples() const = 0;
  /// This rank's share in batches, as `settings` has them.
  virtual Feed feed(const Settings& settings) const = 0;
  /// For people.
  virtual std::string description() const = 0;
  /// Do all ranks share one set of samples, which another number of ranks would share as well?
  virtual bool is_shared() const = 0;

  /// Before the steps of the epoch that `state` is in. Collective.
  virtual void prepare(Net&, const TrainingState&) {}
  /// What was measured while the samples were made; none where an evaluation measures.
  virtual std::optional<Measured> measured() const { return std::nullopt; }
  /// By which epochs are compared: less is better.
  virtual std::optional<double> cost(std::optional<double> eval_loss) const { return eval_loss; }
  virtual bool has_reached_goal() const { return false; }
  /// For the end of the log; empty where there is nothing to say.
  virtual std::string summary() const { return {}; }

  /// For a checkpoint; None where it needs nothing. Collective.
  virtual Tree state_dict(const TrainingState&) const { return {}; }
  /// Puts it back, and corrects `state` where that cannot be.
  virtual void restore(const std::optional<Tree>&, TrainingState&) {}
};

/// The task's. InputError for settings that do not go with it. Collective.
std::unique_ptr<SampleSource> make_sample_source(const Setup& setup);

/// 1 x 28 x 28.
std::string shape_in_words(const std::vector<int64_t>& shape);

}  // namespace lockstep::train
