#pragma once
// Who am I? A pure function from the environment (and MPI's facts, if there are any) to a Job.

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

using Environment = std::map<std::string, std::string>;

/// This process's environment as a map.
Environment current_environment();

/// What MPI knows once it is initialised; MPI is the truth where it speaks.
struct MpiFacts {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
};

/// A process's place in its job.
struct Job {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
  std::string host;
  std::string launcher = "none";   // torchrun, openmpi, pals, pmi, flux, jsrun, pmix, slurm, none
  std::string scheduler = "none";  // slurm, pbs, torque, flux, lsf, none
  std::string job_id;
  std::map<std::string, std::string> because;  // field name -> the variables (or MPI call) that decided it
  std::vector<std::string> warnings;
};

/// The launcher that the environment speaks of, by the order of belief; `choice` overrules ("auto" does not).
std::string detect_launcher(const Environment& environment, const std::string& choice = "auto");

/// Whether MPI_Init may be called under this environment.
bool wants_mpi(const Environment& environment, const std::string& choice = "auto");

/// Throws InputError for phantom ranks, half-set pairs and values that cannot be.
Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi, const std::string& choice = "auto");

}  // namespace lockstep
