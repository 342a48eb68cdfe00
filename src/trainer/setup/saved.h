#pragma once
// A checkpoint read once for the whole job: a file, or the newest whole one of a run. Every reader passes
// here.

#include <optional>
#include <string>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

struct Saved {
  std::string path;  // the file's
  Tree tree;
};

/// Where `wanted` lies; an InputError where there is no such file or folder. For rank 0.
std::string find_saved(const std::string& wanted);

/// `wanted`: a checkpoint, or a run's folder, which means its best one, else its newest. The same on every
/// rank, errors too. Collective.
Saved read_saved(const Team& team, const std::string& wanted);

/// The newest whole checkpoint of a run's folder, if it has come to one. Collective, as above.
std::optional<Saved> newest_saved(const Team& team, const std::string& run_folder);

// What a task remembers of its training data, into a checkpoint and back: predict then needs no data, and
// eval no training set.

/// For "lockstep.task" of a checkpoint; None where the task remembers nothing.
Tree remembered(const Setup& setup);

/// What the config leaves open and a run chooses (config/keys.h, Once) becomes what the checkpoint's run did.
void take_over_from(Settings& settings, const Tree& checkpoint);

/// Puts it back in place of the data. False where the checkpoint brings nothing, or another task's;
/// InputError where it is of another task.kind.
bool recall(Setup& setup, const Tree& checkpoint);

}  // namespace lockstep::train
