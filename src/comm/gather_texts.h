#pragma once
// Every rank's text where there is no MPI to carry it: over the job's store, before any group is opened.

#include <chrono>
#include <string>
#include <vector>

#include "launch/runtime.h"

namespace lockstep::comm {

/// In rank order, on every rank. Throws Error where the ranks cannot meet or one does not come in time.
std::vector<std::string> gather_texts(const Runtime& runtime, const std::string& text,
                                      std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
