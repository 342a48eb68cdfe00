#pragma once
// How a failed rank leaves: one reporter for the job, no rank left waiting.

#include <string>

namespace lockstep::launch {

/// This rank has failed, and ends soon: where several fail of one cause, whoever called this first, here or
/// by leave_failed(), speaks. For errors that take a while to travel up, and close what others look at.
void claim_error_report();
/// Whether another thread of this process has called it, and so is about to say why the process ends.
bool another_thread_leaves();

/// Says `text` once for the job and ends it. Where all ranks failed together it finalises MPI and returns the
/// status to leave with; where others still work it takes them down (MPI_Abort) and does not return.
/// Call it when the Runtime is gone: an exception that flew past it has left MPI up for this.
int leave_failed(int status, const std::string& text);

/// At its exit this process flushes what it has printed and is gone: nothing of the libraries is taken down.
/// What they leave for the exit later than this call runs before.
void leave_to_the_kernel();

/// Says `text` unless another rank of this host has done so; for those who leave right after.
void say_for_job(const std::string& text);

}  // namespace lockstep::launch
