#pragma once
// The first meeting where there is MPI: everybody says hello to rank 0, with a deadline that MPI itself
// lacks.

#include <chrono>
#include <string>
#include <vector>

#include "launch/job.h"

namespace lockstep::comm {

/// Returns on every rank once all have come; otherwise throws on every rank that came, naming those that did
/// not.
void join_over_mpi(const Job& job, std::chrono::milliseconds timeout);

/// Every rank's word, in order: one collective of MPI's own, for ranks that have all come.
std::vector<std::string> gather_over_mpi(const std::string& word, int world);

}  // namespace lockstep::comm
