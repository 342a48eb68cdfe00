#pragma once
// `lockstep submit --wait`: a job's log and progress to its end, through requeues, chains and sweeps.

#include "tools/submit/submission.h"

namespace lockstep::submit {

/// Follows it to its end and returns its status, by the runs' own word. Where Interrupts::came(), it leaves
/// the jobs alone and returns 130.
int wait_for(const Submission& submission);

/// Says that nobody waits any longer, and how to follow; 130.
int leave_alone(const Submission& submission);

}  // namespace lockstep::submit
