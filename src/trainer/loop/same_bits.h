#pragma once
// Whether a run that is resumed can have the bits of one that was never stopped.

#include "lockstep/checkpoint/tree.h"
#include "trainer/setup/setup.h"
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

}  // namespace lockstep::train
