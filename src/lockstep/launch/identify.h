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

/// What MPI knows once it is initialised; MPI is the truth where it speaks.
struct MpiFacts {
  std::string library = {};  // its name and version, for messages
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
};

/// What a process sees beside its environment. Passed in, so that identify() reads no file and asks no
/// system.
struct Surroundings {
  std::string host = {};
  std::optional<std::string> node_file = {};  // the text of PBS_NODEFILE, where there is one
  std::optional<std::string> rank_file = {};  // the text of LSB_DJOB_RANKFILE, where there is one
};

/// Reads the host's name and the files that the environment names.
Surroundings current_surroundings(const Environment& environment);

/// A phantom is one of N processes that each take themselves for "rank 0 of 1".
enum class Phantoms { refuse, allow };

/// The names that --launcher takes: auto, the launchers in the order of belief, torque, mpi, none.
std::vector<std::string> launcher_choices();

/// The launcher that the environment speaks of, by the order of belief; `choice` overrides ("auto" does not).
std::string detect_launcher(const Environment& environment, const std::string& choice = "auto");

/// Whether MPI_Init may be called under this environment.
bool wants_mpi(const Environment& environment, const std::string& choice = "auto");

/// Whether nothing else can bring the ranks together.
bool needs_mpi(const Environment& environment, const std::string& choice = "auto");

/// Throws InputError for half-set pairs and values that cannot be: what can be known before MPI_Init.
void check_environment(const Environment& environment, const std::string& choice = "auto");

/// Throws InputError for phantom ranks, half-set pairs, values that cannot be, and MPI against the
/// environment.
Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi,
             const std::string& choice = "auto", const Surroundings& surroundings = {},
             Phantoms phantoms = Phantoms::refuse);

// The table of launchers: which variables each one sets, in the order in which they are believed.

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

// What one launcher's variables say, read and checked, before MPI is asked. A pair comes from one launcher.

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
