#pragma once
// Whether a run that is resumed can have the bits of one that was never stopped.

#include <optional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/setup/setup.h"
#include "trainer/step/feed.h"
#include "trainer/step/learner.h"

namespace lockstep::train {

/// Adds to a checkpoint: the threads of a rank, the kind of GPU, the order of the sums.
void put_run_facts(const Team& team, const Tree& dict);

/// Logs what differs from where the checkpoint was written and changes the bits: those facts, the machine,
/// the world. With train.exact: required that is an InputError on all ranks, and so is a checkpoint without
/// these facts.
void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner);

/// The same for the processors and GPUs of this job's ranks, before the first step.
void compare_ranks(const Setup& setup);

/// An Error if a parameter or the optimiser's state holds a NaN or an infinity on any rank: a finite loss may
/// have a gradient that is not. Collective.
void refuse_not_finite(const Team& team, const Learner& learner, const TrainingState& state);

/// Throws the Error of the earliest bad loss of all ranks; `bad` is this rank's own. Collective.
[[noreturn]] void report_bad_loss(const Team& team, const std::optional<BadLoss>& bad,
                                  const TrainingState& state);

}  // namespace lockstep::train
