#pragma once
// What --checkpoint names, read once for the whole job: a file, or the newest whole checkpoint of a run.

#include <string>

#include "checkpoint/tree.h"
#include "train/team.h"

namespace lockstep::train {

struct Saved {
  std::string path;  // the file's
  Tree tree;
};

/// `wanted`: a checkpoint, or a run's folder. The same on every rank, errors too. Collective.
Saved read_saved(const Team& team, const std::string& wanted);

}  // namespace lockstep::train
