#pragma once
// A process's place in its job.

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// A process's place in its job.
struct Job {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
  std::string host = {};
  std::string launcher = "none";  // torchrun, openmpi, pals, pmi, flux, jsrun, pmix, slurm, torque, mpi, none
  std::string scheduler = "none";  // slurm, pbs, torque, flux, lsf, none
  std::string job_id = {};
  std::string mpi = {};  // the MPI library in use, "Open MPI v4.1.4"; empty without MPI
  std::map<std::string, std::string> because =
      {};                         // field name -> the variable or MPI call that gave its value
  std::string phantom = {};       // why this process is not a rank; only with Phantoms::allow
  std::string phantom_hint = {};  // what to do about that
  std::vector<std::string> warnings = {};
  std::vector<std::string> guessed = {};  // fields not set by a variable; known after ranks connect
};

}  // namespace lockstep
