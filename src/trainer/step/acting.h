#pragma once
// Where a task acts, in the place of its training set: before each epoch a round of acting brings the samples
// that the epoch's steps learn from, each rank its own.

#include <memory>
#include <optional>
#include <string>

#include "lockstep/tasks/actor.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

/// The source of a task that acts. InputError for settings that are for a data set.
std::unique_ptr<SampleSource> make_acting(const Setup& setup, std::unique_ptr<Actor> actor);

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
