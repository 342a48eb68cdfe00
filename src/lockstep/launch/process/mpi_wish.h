#pragma once
// Which MPI started this process, and so which library answers it.

#include <string>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/mpi/library.h"

namespace lockstep::launch {

/// The programs above this process, nearest first: "/opt/mpich/bin/hydra_pmi_proxy".
std::vector<std::string> programs_above();

/// A pure function of the environment and those programs; `choice` as for identify().
mpi::Wish wish_for_mpi(const Environment& environment, const std::string& choice,
                       const std::vector<std::string>& above);

}  // namespace lockstep::launch
