#pragma once
// The environments of real launchers and schedulers, as they were seen, and what a failed identify() says.

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/launch/identify.h"
#include "refusal.h"

namespace lockstep::test {

/// The variables that "NAME=VALUE NAME=VALUE" lists.
inline launch::Environment env(const std::string& text) {
  launch::Environment result;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    result[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return result;
}

/// The later values win.
inline launch::Environment operator+(launch::Environment base, const launch::Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

inline launch::Environment without(launch::Environment environment, const std::vector<const char*>& names) {
  for (const char* name : names) environment.erase(name);
  return environment;
}

// torchrun --nnodes=2 --nproc-per-node=2, third process
inline const launch::Environment kTorchrun =
    env("RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_RANK=2 "
        "ROLE_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x "
        "TORCHELASTIC_MAX_RESTARTS=0 OMP_NUM_THREADS=1 TORCHELASTIC_USE_AGENT_STORE=True");

// mpirun of Open MPI 4.1 with 2 ranks a node on two nodes, rank 3
inline const launch::Environment kOpenMpi =
    env("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
        "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=4 PMIX_RANK=3 "
        "PMIX_NAMESPACE=1234567 OMPI_MCA_orte_hnp_uri=123.0;tcp://10.0.0.1:4000");

// what MPI says in that rank, and in task 3 of srun
inline const launch::MpiFacts kFourthOfFour = {
    .rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node_rank = 1, .nodes = 2};

// Cray PALS mpiexec -n 8 --ppn 4, rank 5
inline const launch::Environment kPals =
    env("PALS_RANKID=5 PALS_SIZE=8 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=4 PALS_NODEID=1 PALS_APID=a-b-c "
        "PMI_RANK=5 PMI_SIZE=8 PBS_JOBID=77.polaris");

// mpiexec.hydra -n 4 -ppn 2 of MPICH, rank 2
inline const launch::Environment kHydra =
    env("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 PMI_FD=7");

// flux run -N2 -n4, rank 3, without a PMI
inline const launch::Environment kFlux =
    env("FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f2Xv9Kq");

// jsrun -n4 -r2, rank 2
inline const launch::Environment kJsrun =
    env("JSM_NAMESPACE_RANK=2 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=0 LSB_JOBID=4711");

// sbatch -N2 --ntasks-per-node=2: what the batch script itself sees
inline const launch::Environment kSbatch =
    env("SLURM_JOB_ID=42 SLURM_JOBID=42 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NTASKS_PER_NODE=2 "
        "SLURM_TASKS_PER_NODE=2(x2) SLURM_JOB_NUM_NODES=2 SLURM_NNODES=2 SLURM_JOB_NODELIST=n[1-2] "
        "SLURM_NODELIST=n[1-2] SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_CPUS_ON_NODE=2 "
        "SLURM_TASK_PID=900 SLURM_SUBMIT_DIR=/home/a");

// srun inside that job, task 3
inline const launch::Environment kSrun =
    kSbatch + env("SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "
                  "SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NODELIST=n[1-2] "
                  "SLURM_SRUN_COMM_HOST=10.0.0.1");

// qsub -l select=2:ncpus=2:mpiprocs=2: what the job script sees
inline const launch::Environment kPbs =
    env("PBS_JOBID=7.server PBS_NODEFILE=/var/spool/pbs/aux/7.server PBS_O_WORKDIR=/home/a "
        "PBS_ENVIRONMENT=PBS_BATCH PBS_TASKNUM=1 PBS_NODENUM=0 NCPUS=2 OMP_NUM_THREADS=2");
inline const std::string kPbsNodeFile = "n1\nn1\nn2\nn2\n";

/// What identify() refuses with; "" where it does not.
inline std::string refusal(const launch::Environment& environment,
                           const std::optional<launch::MpiFacts>& mpi = {},
                           const std::string& choice = "auto", const launch::HostFacts& around = {}) {
  return refusal_of([&] { launch::identify(environment, mpi, choice, around); });
}

/// The text holds every one of the parts.
inline ::testing::AssertionResult holds(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure()
             << "no '" << part << "' in: " << (text.empty() ? "(no error)" : text);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep::test
