#pragma once
// What smelt at the start, said once for the job: guessed places, unreadable node files, threads beyond a
// share.

#include <string>
#include <vector>

#include "lockstep/launch/process/runtime.h"

namespace lockstep::launch {

/// Rank 0 logs every rank's warnings, the job's and `more`, each once. Collective where there is MPI; without
/// it rank 0 knows its own.
void say_warnings(const Runtime& runtime, const std::vector<std::string>& more);

}  // namespace lockstep::launch
