#pragma once
// Each connection is an open file, and a process may have only so many.

#include <cstdint>

#include "lockstep/launch/identify.h"

namespace lockstep::comm {

/// Raises this process's own limit as far as needed and as the system lets it. Returns the limit.
uint64_t make_room_for_files(uint64_t files);

/// What a rank of this job may need: gloo's connection to each rank, and rank 0's store one for each.
uint64_t files_for(const Job& job);

/// Throws InputError where gloo could not connect this rank to all others.
void check_room_for_gloo(const Job& job);

}  // namespace lockstep::comm
