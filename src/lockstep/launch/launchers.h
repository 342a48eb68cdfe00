#pragma once
// The table of launchers: which variables each one sets, in the order in which they are believed.

#include <span>

#include "lockstep/launch/identify.h"
#include "lockstep/mpi/library.h"

namespace lockstep::launch {

/// When a process started by this launcher may call MPI_Init: where nothing answers it aborts or says "0 of
/// 1".
enum class UsesMpi { never, always, when_wired };

/// Names of variables; nullptr where the launcher sets none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world = nullptr;
  const char* local_rank = nullptr;
  const char* local_world = nullptr;
  const char* node_rank = nullptr;
  const char* nodes = nullptr;
  UsesMpi mpi;
  std::span<const mpi::Family> answers = {};  // the MPIs that it can start, likeliest first
  bool world_from_mpi = false;                // the size may be missing: MPI tells
  const char* announced =
      nullptr;  // the variable whose presence means "started by me"; nullptr = either of the pair
  bool only_by_choice = false;  // too easily mistaken to be believed unasked
  bool beyond_choice = false;   // whatever was chosen was chosen for the process that started this one
  const char* remedy;           // how to start it right
};

std::span<const Launcher> launchers();

/// The launcher that speaks, or that was chosen; nullptr = alone ("none") or MPI's word alone ("mpi").
const Launcher* find_launcher(const Environment& environment, const std::string& choice);

/// The shell of an interactive Slurm step counts as no task, though it looks like "rank 0 of 1".
bool in_interactive_slurm_step(const Environment& environment);

}  // namespace lockstep::launch
