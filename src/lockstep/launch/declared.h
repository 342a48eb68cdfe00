#pragma once
// What one launcher's variables say, read and checked, before MPI is asked. A pair comes from one launcher.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/launchers.h"

namespace lockstep::launch {

struct Declared {
  std::optional<int> rank, world, local_rank, local_world, node_rank, nodes;
  std::map<std::string, std::string> because;
  std::vector<std::string> guessed;  // fields that no variable told
};

/// Throws InputError for half-set pairs and values that cannot be.
Declared read_declared(const Launcher& launcher, const Environment& environment);

/// Fills what follows from the rest (one rank, one node, equal nodes); what had to be guessed is a warning.
void complete(Declared& declared, const Launcher& launcher, std::vector<std::string>& warnings);

/// Whether the launcher or MPI said it, and it is no guess that may differ between the ranks.
bool was_told(const Job& job, const char* field);
bool surely_one_node(const Job& job);

/// jsrun's node number: the place of this host in LSB_DJOB_RANKFILE after its first line.
void read_rank_file(Declared& declared, const Surroundings& surroundings);

}  // namespace lockstep::launch
