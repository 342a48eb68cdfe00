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

/// What a checkpoint tells of the run beside the machine: the threads of a rank, the kind of GPU, the order
/// of the sums.
void put_run_facts(const Team& team, const Tree& dict);

/// Says what here is unlike where the checkpoint was written, and changes the bits from now on: those facts,
/// the machine, the world. With train.exact: required that is an InputError, on all ranks, and so is a
/// checkpoint that does not tell.
void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner);

/// The same of the ranks of this job among themselves, before the first step: their processors and GPUs.
void compare_ranks(const Setup& setup);

// A loss or a state that is no number: which rank, which step, which samples or tensor. Alike on all ranks.

/// An Error where a parameter or the optimiser's state holds a NaN or an infinity on any rank: a loss may be
/// finite and its gradient not, and the state shows it before the next loss does. Collective.
void refuse_not_finite(const Team& team, const Learner& learner, const TrainingState& state);

/// The Error of the earliest bad loss of all ranks; `bad` is this rank's own, and one rank has one.
/// Collective.
[[noreturn]] void report_bad_loss(const Team& team, const std::optional<BadLoss>& bad,
                                  const TrainingState& state);

}  // namespace lockstep::train
