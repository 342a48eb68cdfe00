#pragma once
// The checkpoint of a training: everything that it needs to resume with the same bits.

#include <string>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/mesh.h"
#include "trainer/step/learner.h"
#include "trainer/step/training_state.h"

namespace lockstep::train {

/// The whole checkpoint. Collective; the ranks other than 0 get an empty one.
Tree to_checkpoint(const Mesh& mesh, const TrainingState& state, const Learner& learner,
                   const std::string& config);

/// Puts everything back. InputError, before anything is changed, where the model is another one. A file of
/// Python's brings its model, and its optimiser where it has one.
TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner);

}  // namespace lockstep::train
