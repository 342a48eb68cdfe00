#pragma once
// A checkpoint read once for the whole job: a file, or the newest complete one of a run.

#include <optional>
#include <string>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

struct SavedCheckpoint {
  std::string path;  // the file's
  Tree tree;
};

/// Where `wanted` lies; an InputError where there is no such file or folder. For rank 0.
std::string find_saved(const std::string& wanted);

/// `wanted`: a checkpoint, or a run's folder, which means its best one, else its newest. The same on every
/// rank, errors too. Collective.
SavedCheckpoint read_saved(const Team& team, const std::string& wanted);

/// The newest complete checkpoint of a run's folder, if there is one. Collective, as above.
std::optional<SavedCheckpoint> newest_saved(const Team& team, const std::string& run_folder);

// What a task remembers of its training data: predict then needs no data, and eval no training set.

/// For "lockstep.task" of a checkpoint; None where the task remembers nothing.
Tree remembered(const Setup& setup);

/// Keys that the config leaves open (config/keys.h, Once) get what the checkpoint's run chose.
void take_over_from(Settings& settings, const Tree& checkpoint);

/// Restores it. False if the checkpoint has none, or another task's; InputError for another task.kind.
bool recall(Setup& setup, const Tree& checkpoint);

}  // namespace lockstep::train
