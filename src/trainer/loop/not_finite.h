#pragma once
// A loss or a state that is no number: which rank, which step, which samples or tensor. Alike on all ranks.

#include <optional>

#include "lockstep/parallel/team.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/step/learner.h"
#include "trainer/step/training_state.h"

namespace lockstep::train {

/// An Error where a parameter or the optimiser's state holds a NaN or an infinity on any rank: a loss may be
/// finite and its gradient not, and the state shows it before the next loss does. Collective.
void refuse_not_finite(const Team& team, const Learner& learner, const TrainingState& state);

/// The Error of the earliest bad loss of all ranks; `bad` is this rank's own, and one rank has one.
/// Collective.
[[noreturn]] void report_bad_loss(const Team& team, const std::optional<BadLoss>& bad,
                                  const TrainingState& state);

}  // namespace lockstep::train
