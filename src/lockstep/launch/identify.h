#pragma once
// Who am I? A pure function from the environment (and MPI's facts, if there are any) to a Job.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/job.h"
#include "lockstep/mpi/library.h"

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;

/// This process's environment as a map.
Environment current_environment();

/// What MPI knows once it is initialized; MPI is the truth where it speaks.
struct MpiFacts {
  std::string library = {};  // its name and version, for messages
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
};

/// What identify() needs to know about this machine. The caller passes it, so that identify() reads no file.
struct HostFacts {
  std::string host = {};
  std::optional<std::string> node_file = {};  // the text of PBS_NODEFILE, where there is one
};

/// Reads the host's name, and PBS_NODEFILE if no launcher started this process.
HostFacts read_host_facts(const Environment& environment);

/// A phantom rank is one of N processes that each believe they are "rank 0 of 1".
enum class Phantoms { refuse, allow };

/// The names that --launcher takes: auto, the launchers in the table's order, mpi, none.
std::vector<std::string> launcher_choices();

/// The first launcher of the table whose variables are set; any `choice` but "auto" overrides it.
std::string detect_launcher(const Environment& environment, const std::string& choice = "auto");

/// Whether MPI_Init may be called under this environment.
bool wants_mpi(const Environment& environment, const std::string& choice = "auto");

/// Whether the ranks cannot meet without MPI.
bool needs_mpi(const Environment& environment, const std::string& choice = "auto");

/// Throws InputError for half-set pairs and impossible values, before MPI_Init.
void check_environment(const Environment& environment, const std::string& choice = "auto");

/// Throws InputError for phantom ranks, half-set pairs, impossible values, and if MPI contradicts it.
Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi,
             const std::string& choice = "auto", const HostFacts& surroundings = {},
             Phantoms phantoms = Phantoms::refuse);

/// When a process started by this launcher may call MPI_Init. Without a PMI, MPI_Init aborts or says "0 of
/// 1".
enum class UsesMpi { never, always, with_pmi };

/// Names of variables; nullptr where the launcher sets none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world = nullptr;
  const char* local_rank = nullptr;
  const char* local_world = nullptr;
  const char* node_rank = nullptr;
  const char* nodes = nullptr;
  const char* job = nullptr;  // the same for all ranks that it started together
  UsesMpi mpi;
  std::span<const mpi::Family> answers = {};  // the MPIs that it can start, likeliest first
  bool world_from_mpi = false;                // the size may be missing: MPI tells
  const char* announced = nullptr;            // means "started by me"; nullptr = rank or world does
  bool only_by_choice = false;                // its variables are also set where it started nothing
  bool ignores_choice = false;                // --launcher does not override it
  const char* remedy;                         // how to start the ranks
};

/// The table, in the order in which lockstep looks at it.
std::span<const Launcher> launchers();

/// The launcher that was chosen, or whose variables are set; nullptr = "none" or "mpi".
const Launcher* find_launcher(const Environment& environment, const std::string& choice);

/// Whether this is the shell of an interactive Slurm step, which looks like "rank 0 of 1" but is no task.
bool in_interactive_slurm_step(const Environment& environment);

/// "2(x2),1" -> 2 2 1, as in SLURM_STEP_TASKS_PER_NODE; InputError where it is malformed.
std::vector<int> parse_task_counts(const std::string& text);

/// Whether the launcher or MPI gave this value; an assumed value may differ between the ranks.
bool is_given(const Job& job, const char* field);
bool is_known_single_node(const Job& job);

}  // namespace lockstep::launch
