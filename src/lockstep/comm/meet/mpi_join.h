#pragma once
// The first meeting where there is MPI: everybody says hello to rank 0, with a deadline that MPI itself
// lacks.

#include <chrono>

#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// Returns on every rank once all have come; otherwise throws on every rank that came, naming those that did
/// not.
void join_over_mpi(const launch::Runtime& runtime, std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
