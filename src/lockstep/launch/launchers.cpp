// The table of launchers, and which of them started this process. A new launcher is one row here and one case
// in tests/launch/launchers_test.cpp.
#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

using enum mpi::Family;

constexpr const char* kMpirun = "start the ranks with the mpirun of the MPI library that lockstep loads";

constexpr mpi::Family kOfOpenMpi[] = {open_mpi, standard};
constexpr mpi::Family kOverPmi[] = {mpich, standard, open_mpi};
constexpr mpi::Family kOverPmix[] = {open_mpi, standard, mpich};

// Open MPI's _NODE_RANK is not a node's rank but a rank on a node, so it is not here.
constexpr auto kLaunchers = std::to_array<Launcher>({
    {.name = "as_world",
     .rank = "LOCKSTEP_RANK",
     .world = "LOCKSTEP_WORLD_SIZE",
     .local_rank = "LOCKSTEP_LOCAL_RANK",
     .local_world = "LOCKSTEP_LOCAL_WORLD_SIZE",
     .node_rank = "LOCKSTEP_NODE_RANK",
     .nodes = "LOCKSTEP_NODES",
     .job = "LOCKSTEP_RENDEZVOUS",
     .mpi = UsesMpi::never,
     .ignores_choice = true,
     .remedy = "unset LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE: lockstep train sets them for the ranks that it "
               "starts"},
    {.name = "torchrun",
     .rank = "RANK",
     .world = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .node_rank = "GROUP_RANK",
     .nodes = "GROUP_WORLD_SIZE",
     .job = "TORCHELASTIC_RUN_ID",
     .mpi = UsesMpi::never,
     .remedy = "start with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and "
               "MASTER_PORT"},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .mpi = UsesMpi::always,
     .answers = kOfOpenMpi,
     .remedy = kMpirun},
    {.name = "pals",
     .rank = "PALS_RANKID",
     .world = "PALS_SIZE",
     .local_rank = "PALS_LOCAL_RANKID",
     .local_world = "PALS_LOCAL_SIZE",
     .node_rank = "PALS_NODEID",
     .job = "PALS_APID",
     .mpi = UsesMpi::always,
     .answers = kOverPmi,
     .world_from_mpi = true,
     .remedy = "start the ranks with mpiexec -n N --ppn P"},
    {.name = "pmi",
     .rank = "PMI_RANK",
     .world = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_world = "MPI_LOCALNRANKS",
     .mpi = UsesMpi::always,
     .answers = kOverPmi,
     .remedy = kMpirun},
    {.name = "flux",
     .rank = "FLUX_TASK_RANK",
     .world = "FLUX_JOB_SIZE",
     .local_rank = "FLUX_TASK_LOCAL_ID",
     .nodes = "FLUX_JOB_NNODES",
     .job = "FLUX_JOB_ID",
     .mpi = UsesMpi::with_pmi,
     .answers = kOverPmi,
     .remedy = "start the ranks with flux run -n N"},
    {.name = "jsrun",
     .rank = "JSM_NAMESPACE_RANK",
     .world = "JSM_NAMESPACE_SIZE",
     .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
     .job = "JSM_NAMESPACE_SIZE",
     .mpi = UsesMpi::with_pmi,
     .answers = kOfOpenMpi,
     .remedy = "start the ranks with jsrun"},
    {.name = "pmix",
     .rank = "PMIX_RANK",
     .job = "PMIX_NAMESPACE",
     .mpi = UsesMpi::always,
     .answers = kOverPmix,
     .world_from_mpi = true,
     .remedy = "start the ranks with mpirun or srun --mpi=pmix"},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .world = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .node_rank = "SLURM_NODEID",
     .nodes = "SLURM_STEP_NUM_NODES",
     .job = "SLURM_STEP_ID",
     .mpi = UsesMpi::with_pmi,
     .answers = kOverPmix,
     .announced = "SLURM_STEP_NUM_TASKS",
     .remedy = "start the ranks with srun"},
    {.name = "torque",
     .rank = "PBS_VNODENUM",
     .world = "PBS_NP",
     .local_world = "PBS_NUM_PPN",
     .node_rank = "PBS_NODENUM",
     .nodes = "PBS_NUM_NODES",
     .mpi = UsesMpi::never,
     .only_by_choice = true,
     .remedy = "start the ranks with pbsdsh -u"},
});

bool is_announced(const Launcher& row, const Environment& environment) {
  if (row.only_by_choice) return false;
  if (row.announced) return is_set(environment, row.announced) && !in_interactive_slurm_step(environment);
  return is_set(environment, row.rank) || is_set(environment, row.world);
}

const Launcher& chosen(const Environment& environment, const std::string& choice) {
  const auto row = std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Launcher& launcher) {
    return choice == launcher.name && !launcher.ignores_choice;
  });
  if (row == kLaunchers.end()) {
    throw InputError(format("unknown launcher '{}'", choice), "launch.launcher or --launcher",
                     format("choose one of {}", base::join(launcher_choices(), ", ")));
  }
  if (!is_set(environment, row->rank)) {
    throw InputError(format("the launcher '{}' was chosen, but {} is not set", choice, row->rank),
                     "launch.launcher or --launcher", format("{}; or use --launcher auto", row->remedy));
  }
  return *row;
}

// In an srun step or a Flux job without a PMI nothing answers MPI_Init. With --launcher slurm over a bare PMI
// lockstep does not use MPI, because an Open MPI that was not built for Slurm's PMI aborts.
bool has_pmi(const Environment& environment, const std::string& choice) {
  if (is_set(environment, "PMIX_RANK")) return true;
  return choice != "slurm" && (is_set(environment, "PMI_RANK") || is_set(environment, "PMI_FD"));
}

}  // namespace

std::span<const Launcher> launchers() {
  return kLaunchers;
}

bool in_interactive_slurm_step(const Environment& environment) {
  const auto found = environment.find("SLURM_STEP_ID");
  return found != environment.end() && found->second == "4294967290";  // SLURM_INTERACTIVE_STEP in slurm.h
}

const Launcher* find_launcher(const Environment& environment, const std::string& choice) {
  for (const auto& row : kLaunchers)
    if (row.ignores_choice && is_announced(row, environment)) return &row;
  if (choice == "none" || choice == "mpi") return nullptr;
  if (choice != "auto") return &chosen(environment, choice);
  for (const auto& row : kLaunchers)
    if (is_announced(row, environment)) return &row;
  return nullptr;
}

std::vector<std::string> launcher_choices() {
  std::vector<std::string> names = {"auto"};
  for (const auto& row : launchers())
    if (!row.ignores_choice) names.emplace_back(row.name);
  names.insert(names.end(), {"mpi", "none"});
  return names;
}

std::string detect_launcher(const Environment& environment, const std::string& choice) {
  if (const auto* row = find_launcher(environment, choice)) return row->name;
  return choice == "mpi" ? "mpi" : "none";
}

bool wants_mpi(const Environment& environment, const std::string& choice) {
  const auto* row = find_launcher(environment, choice);
  if (!row) return choice == "mpi";
  return row->mpi == UsesMpi::always || (row->mpi == UsesMpi::with_pmi && has_pmi(environment, choice));
}

bool needs_mpi(const Environment& environment, const std::string& choice) {
  const auto* row = find_launcher(environment, choice);
  return !row || row->mpi == UsesMpi::always;
}

}  // namespace lockstep::launch
