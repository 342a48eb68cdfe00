#pragma once
// A rank's batches, step by step, from any place in an epoch.

#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "lockstep/tasks/actor.h"
#include "trainer/config/settings.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

/// Where a run is, as its checkpoints hold it. The same on every rank, but for the losses.
struct TrainingState {
  int64_t step = 0;      // optimizer steps taken
  int64_t epoch = 0;     // the one it is in, from 0
  int64_t consumed = 0;  // samples of this epoch that all ranks together have taken
  int64_t step_in_epoch = 0;
  bool epoch_trained = false;  // every batch is done; evaluation and schedule are still to come
  double seconds = 0;          // trained, all attempts together
  int64_t metrics_offset = 0;
  double best_loss = std::numeric_limits<double>::infinity();  // early stop
  int64_t epochs_without_better = 0;
  double loss_sum = 0;  // of this epoch, this rank's own
  int64_t loss_count = 0;
};

struct EpochPlan {
  int64_t samples = 0;          // a rank's, an epoch
  int64_t batches = 0;          // a rank's, an epoch
  int64_t steps_per_epoch = 0;  // optimizer steps
  int64_t total_steps = 0;      // of the whole run
  int64_t step_samples = 0;     // of all ranks together, a full step
};

/// Throws InputError where there is nothing to train on.
EpochPlan plan_epochs(const Settings& settings, int64_t samples, int world);

LoaderOptions loader_options(const Settings& settings, at::Device device);

/// Draws one number, as Python's DataLoader does at the start of each pass: a model with dropout needs it for
/// Python's results.
void draw_base_seed();

/// What is left of one epoch, from step to step: `while (epoch.next_step())`. A batch is fetched when the
/// loop comes to it, and none before.
class EpochFeed {
 public:
  EpochFeed(DistributedSampler sampler, std::shared_ptr<const Dataset> data, LoaderOptions options,
            int64_t accumulate, TrainingState& state);
  EpochFeed(const EpochFeed&) = delete;
  EpochFeed& operator=(const EpochFeed&) = delete;

  /// This rank's samples that are left.
  SampleOrder order() const { return loader_.order(); }
  /// Of the whole epoch.
  int64_t steps() const { return steps_; }
  /// Begins the next optimizer step; false if no batch is left.
  bool next_step();
  bool is_over() const { return left_ == 0; }
  /// Moves the state past the step whose batches were fetched last.
  void advance(TrainingState& state) const;

  // Of the step that has begun:

  /// How many batches it has.
  int64_t batches() const { return size_; }
  /// The next one; null after the last.
  Batch* next_batch();
  /// Whether the loop is at the last one.
  bool at_last() const { return fetched_ == size_; }
  /// The epoch's next batch, of this step or the one after it, if it is ready; does not wait.
  const Batch* look_ahead();
  /// Of the batches fetched so far.
  int64_t samples() const { return step_samples_; }

 private:
  // What the loader gave before its turn.
  struct Ahead {
    Batch batch;
    std::exception_ptr error;
  };
  Batch take();

  const DistributedSampler sampler_;
  Loader loader_;
  const int64_t accumulate_;
  int64_t left_;         // batches
  int64_t samples_ = 0;  // taken
  const int64_t steps_;
  int64_t size_ = 0, fetched_ = 0, step_samples_ = 0;
  Loader::iterator next_;
  bool is_first_ = true;
  std::optional<Ahead> ahead_;
  Batch current_;
};

class Feed {
 public:
  Feed(const Settings& settings, std::shared_ptr<const Dataset> data, int rank, int world, at::Device device);
  /// This rank's share.
  Feed(const Settings& settings, std::shared_ptr<const Dataset> data, const Team& team)
      : Feed(settings, std::move(data), team.rank(), team.world(), team.device()) {}

  /// The rest of the epoch that the state is in, which may be nothing. At an epoch's start it draws one
  /// number, as Python does.
  EpochFeed epoch(TrainingState& state) const;

 private:
  std::shared_ptr<const Dataset> data_;
  DistributedSampler sampler_;
  LoaderOptions options_;
  int64_t accumulate_;
};

/// What an epoch is measured by, besides its loss.
struct EpochMetrics {
  std::string by = "Evaluation";
  std::string curves = "eval";  // TensorBoard's group
  std::vector<std::pair<std::string, double>> values = {};
  std::set<std::string> counts = {};  // which of them are whole numbers
};

// Where an epoch's samples come from: a data set, or a round of acting before each epoch.

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// An epoch's, of all ranks together.
  virtual int64_t samples() const = 0;
  /// This rank's share in batches, as `settings` has them.
  virtual Feed feed(const Settings& settings) const = 0;
  virtual std::string description() const = 0;
  /// Whether all ranks share one set of samples, at any number of ranks.
  virtual bool is_shared() const = 0;

  /// Before the steps of the epoch that `state` is in. Collective.
  virtual void prepare(Net&, const TrainingState&) {}
  /// What was measured while the samples were made; none if an evaluation does that.
  virtual std::optional<EpochMetrics> measured() const { return std::nullopt; }
  /// Compares epochs: less is better.
  virtual std::optional<double> cost(std::optional<double> eval_loss) const { return eval_loss; }
  virtual bool has_reached_goal() const { return false; }
  /// For the end of the log, or empty.
  virtual std::string summary() const { return {}; }

  /// For a checkpoint; None where it needs nothing. Collective.
  virtual Tree state_dict(const TrainingState&) const { return {}; }
  /// Restores it, and corrects `state` if that is not possible.
  virtual void restore(const std::optional<Tree>&, TrainingState&) {}
};

/// The task's. InputError for settings that do not go with it. Collective.
std::unique_ptr<SampleSource> make_sample_source(const Setup& setup);

// Where a task acts, in the place of its training set: before each epoch a round of acting brings the samples
// that the epoch's steps learn from, each rank its own (acting.cpp).

/// The source of a task that acts. InputError for settings that are for a data set.
std::unique_ptr<SampleSource> make_acting(const Setup& setup, std::unique_ptr<Actor> actor);

/// The rewards of whole episodes.
struct EpisodeRewards {
  double reward, least, largest;  // the mean, and its bounds
  std::optional<double> goal;     // of the mean, where the task has one
  bool solved() const { return goal && reward >= *goal; }
};
/// For `eval`: 100 episodes, the same at any number of ranks. Collective.
EpisodeRewards play_episodes(const Setup& setup, const Actor& actor, Net& net);

/// A table for people.
std::string report_of(const EpisodeRewards& play);

/// The task's actor on this rank; nullptr where its samples are a data set's.
std::unique_ptr<Actor> actor_of(const Setup& setup);

/// 1 x 28 x 28.
std::string shape_in_words(const std::vector<int64_t>& shape);

}  // namespace lockstep::train
