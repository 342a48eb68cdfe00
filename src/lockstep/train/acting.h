#pragma once
// Where a task acts, in the place of its training set: before each epoch a round of acting brings the samples
// that the epoch's steps learn from, each rank its own.

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/data/dataset.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/tasks/actor.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/run_log.h"
#include "lockstep/train/setup.h"

namespace lockstep::train {

class Acting {
 public:
  Acting(const Setup& setup, std::unique_ptr<Actor> actor);

  /// An epoch's samples, of this rank: the round's, one pass after another. act() changes what is in it.
  const std::shared_ptr<const Dataset>& samples() const { return samples_; }
  /// Of these, and in this order, whatever `data.shuffle` says.
  Feed feed() const;
  /// Are there samples to learn from? Not before the first round, and where a checkpoint had none for these
  /// ranks.
  bool has_round() const;
  /// The round before this epoch. Collective.
  void act(Net& net, int64_t epoch);

  /// Of the round, over all ranks: "reward" and "episodes", and "recent_reward" over the last ones.
  Measured measured() const;
  /// The mean reward over the goal's last episodes, or over as many as there are; none without one.
  std::optional<double> recent_reward() const;
  bool has_reached_goal() const;
  /// How much was acted, for the end of the log; empty where nothing was.
  std::string summary() const;

  /// For a checkpoint; inside an epoch it holds the round's samples, too. Collective.
  Tree state_dict(const TrainingState& state) const;
  /// Puts it back. Where that cannot be, the ranks being others, their environments start again, and what
  /// is left of the epoch learns from a round of theirs; `state` learns of it, and the log.
  void restore(const std::optional<Tree>& dict, TrainingState& state);

 private:
  struct Samples;

  std::vector<int64_t> order_of(int64_t epoch) const;
  void count(const std::vector<Episode>& own);
  bool restore_own(const Tree& dict, const TrainingState& state);

  const Setup& setup_;
  const Team& team_;  // of those that have samples of their own
  std::unique_ptr<Actor> actor_;
  std::shared_ptr<Samples> samples_of_round_;
  std::shared_ptr<const Dataset> samples_;  // the same
  std::deque<double> recent_;               // rewards of all ranks' last episodes; the same on every rank
  double reward_sum_ = 0;                   // of the round's
  int64_t episodes_ = 0;                    // of the round
  int64_t steps_ = 0;                       // of this attempt and rank
  double seconds_ = 0;
};

/// The task's actor, where it has one. InputError for settings that are for a data set. Collective.
std::unique_ptr<Acting> make_acting(const Setup& setup);

/// The rewards of whole episodes.
struct Play {
  double reward, least, largest;  // the mean, and its bounds
  std::optional<double> goal;     // of the mean, where the task has one
  bool solved() const { return goal && reward >= *goal; }
};
/// For `eval`: 100 episodes, the same at any number of ranks. Collective.
Play play_episodes(const Setup& setup, const Actor& actor, Net& net);

/// A table for people.
std::string report_of(const Play& play);

/// The task's actor on this rank; nullptr where its samples are a data set's.
std::unique_ptr<Actor> actor_of(const Setup& setup);

}  // namespace lockstep::train
