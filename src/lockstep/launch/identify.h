#pragma once
// Who am I? A pure function from the environment (and MPI's facts, if there are any) to a Job.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/job.h"

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

}  // namespace lockstep::launch
