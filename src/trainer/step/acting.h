#pragma once
// Where a task acts, in the place of its training set: before each epoch a round of acting brings the samples
// that the epoch's steps learn from, each rank its own.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/tasks/actor.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

class Acting : public SampleSource {
 public:
  Acting(const Setup& setup, std::unique_ptr<Actor> actor);

  int64_t samples() const override { return round_size() * team_.world(); }
  /// Of the round, one pass after another, in an order of its own, whatever `data.shuffle` says.
  Feed feed(const Settings& settings) const override;
  std::string description() const override;
  bool is_shared() const override { return false; }

  /// The round before this epoch, where there is none yet.
  void prepare(Net& net, const TrainingState& state) override;

  /// Of the round, over all ranks: "reward" and "episodes", and "recent_reward" over the last ones.
  std::optional<Measured> measured() const override;
  /// The mean reward over the goal's last episodes, or over as many as there are, as a loss; none without
  /// one.
  std::optional<double> cost(std::optional<double> eval_loss) const override;
  bool has_reached_goal() const override;
  /// How much was acted.
  std::string summary() const override;

  /// Inside an epoch it holds the round's samples, too.
  Tree state_dict(const TrainingState& state) const override;
  /// Where the ranks are others, their environments start again, and what is left of the epoch learns from a
  /// round of theirs; `state` learns of it, and the log.
  void restore(const std::optional<Tree>& dict, TrainingState& state) override;

 private:
  struct Samples;

  int64_t round_size() const;
  bool has_round() const;
  void act(Net& net, int64_t epoch);
  std::optional<double> recent_reward() const;
  std::vector<int64_t> order_of(int64_t epoch) const;
  void count(const std::vector<Episode>& own);
  bool restore_own(const Tree& dict, const TrainingState& state);

  const Setup& setup_;
  const Team& team_;  // of those that have samples of their own
  std::unique_ptr<Actor> actor_;
  std::shared_ptr<Samples> samples_of_round_;
  std::deque<double> recent_;  // rewards of all ranks' last episodes; the same on every rank
  double reward_sum_ = 0;      // of the round's
  int64_t episodes_ = 0;       // of the round
  int64_t steps_ = 0;          // of this attempt and rank
  double seconds_ = 0;
};

/// InputError for settings that are for a data set.
std::unique_ptr<Acting> make_acting(const Setup& setup, std::unique_ptr<Actor> actor);

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
