#include "lockstep/launch/scheduler.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/hostlist.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

// Torque sets PBS_JOBID too, so it is asked first by what it alone sets; Flux may run inside any of them.
constexpr std::array<SchedulerRow, 4> kSchedulers = {
    {{"slurm", "SLURM_JOB_ID"}, {"pbs", "PBS_JOBID"}, {"lsf", "LSB_JOBID"}, {"flux", "FLUX_JOB_ID"}}};
constexpr SchedulerRow kTorque = {"torque", "PBS_JOBID"};

bool is_torque(const Environment& environment) {
  return is_set(environment, "PBS_NUM_PPN") || is_set(environment, "PBS_VNODENUM") ||
         is_set(environment, "PBS_NP");
}

constexpr const char* kAlone = "; to run alone on purpose: --launcher none";

Phantom started_alone(const std::string& what, const std::string& how) {
  return {format("this process was started alone (rank 0 of 1), but {}", what), how + kAlone};
}

int slurm_tasks(const Environment& environment) {
  const int nodes = count_of(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  if (const auto tasks = count_of(environment, "SLURM_NTASKS")) return std::max(*tasks, nodes);
  return nodes;
}

Phantom slurm_phantom(const Environment& environment) {
  const int tasks = slurm_tasks(environment);
  if (tasks == 1) return {};
  const char* variable = is_set(environment, "SLURM_NTASKS") ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
  return started_alone(format("the Slurm job was given {} tasks ({})", tasks, quote(environment, variable)),
                       "start the ranks with srun or mpirun");
}

// One line a rank under PBS; but Torque's lines are cores, and so are Gadi's where they equal PBS_NCPUS.
bool lines_are_cores(const Environment& environment, size_t lines) {
  return is_torque(environment) || text_of(environment, "PBS_NCPUS") == std::to_string(lines);
}

Phantom pbs_phantom(const Environment& environment, const Surroundings& surroundings,
                    std::vector<std::string>& warnings) {
  const std::string how = "start the ranks with mpirun or mpiexec";
  if (number_of(environment, "PBS_NODENUM").value_or(0) > 0) {
    return started_alone(
        format("it runs on another host of a PBS job ({})", quote(environment, "PBS_NODENUM")), how);
  }
  // the job's script is task 1; others are pbsdsh's or pbs_tmrsh's
  if (number_of(environment, "PBS_TASKNUM").value_or(1) > 1 ||
      number_of(environment, "PBS_VNODENUM").value_or(0) > 0) {
    return started_alone(format("it is a further task of a PBS job ({})", quote(environment, "PBS_TASKNUM")),
                         how);
  }
  if (!surroundings.node_file || surroundings.node_file->empty()) {
    if (!text_of(environment, "PBS_NODEFILE").empty())
      warnings.push_back(format("{} cannot be read or is empty: taken for a job of one process",
                                quote(environment, "PBS_NODEFILE")));
    return {};
  }
  const auto lines = parse_node_file(*surroundings.node_file);
  const size_t hosts = unique_hosts(lines).size();
  const std::string what =
      format("PBS_NODEFILE has {} lines for {} host{}", lines.size(), hosts, hosts == 1 ? "" : "s");
  if (hosts > 1 || (lines.size() > 1 && !lines_are_cores(environment, lines.size())))
    return started_alone(what, how);
  if (lines.size() > 1) warnings.push_back(what + "; taken for cores, and this process for the only rank");
  return {};
}

Phantom lsf_phantom(const Environment& environment, std::vector<std::string>& warnings) {
  const int slots = count_of(environment, "LSB_DJOB_NUMPROC").value_or(1);
  if (slots > 1) {
    warnings.push_back(
        format("the LSF job has {} slots and this process was started alone; jsrun starts ranks", slots));
  }
  return {};
}

// Open MPI 5 under srun without PMIx: every task is told "0 of 1", silently (ompi#13523).
Phantom step_phantom(const Environment& environment) {
  const int tasks = count_of(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks == 1 || is_set(environment, "PRTE_LAUNCHED") || in_interactive_slurm_step(environment)) return {};
  return {
      format(
          "MPI says rank 0 of 1, but this Slurm step has {} tasks ({}): {} processes would each train alone",
          tasks, quote(environment, "SLURM_STEP_NUM_TASKS"), tasks),
      "start with srun --mpi=pmix (srun --mpi=list shows what there is) or mpirun, or say --launcher slurm"};
}

}  // namespace

const SchedulerRow* find_scheduler(const Environment& environment) {
  for (const auto& row : kSchedulers) {
    if (!is_set(environment, row.job_id)) continue;
    return row.job_id == std::string("PBS_JOBID") && is_torque(environment) ? &kTorque : &row;
  }
  return nullptr;
}

Phantom find_phantom(const Environment& environment, const Launcher* launcher, bool mpi_spoke,
                     const Surroundings& surroundings, std::vector<std::string>& warnings) {
  // a launcher that counts its ranks itself meant one
  if (launcher && launcher->world && is_set(environment, launcher->world)) return {};
  if (mpi_spoke) {
    if (auto phantom = step_phantom(environment); !phantom.what.empty()) return phantom;
    if (launcher) return {};
  }
  const auto* scheduler = find_scheduler(environment);
  if (!scheduler) return {};
  const std::string name = scheduler->name;
  if (name == "slurm") return slurm_phantom(environment);
  if (name == "pbs" || name == "torque") return pbs_phantom(environment, surroundings, warnings);
  if (name == "lsf") return lsf_phantom(environment, warnings);
  return {};
}

namespace {

// A wrapper that translates one launcher's word for another agrees with it; others around it (the step of
// mpirun's daemons) need not.
bool is_translated(const Environment& environment, const Launcher& launcher) {
  return std::any_of(launchers().begin(), launchers().end(), [&](const Launcher& row) {
    return row.rank != std::string(launcher.rank) && row.world && is_set(environment, row.rank) &&
           number_of(environment, row.rank) == number_of(environment, launcher.rank) &&
           count_of(environment, row.world) == count_of(environment, launcher.world);
  });
}

}  // namespace

Phantom find_leftover(const Environment& environment, const Launcher& launcher) {
  if (launcher.name != std::string("torchrun") || is_set(environment, "TORCHELASTIC_RUN_ID")) return {};
  const int own_world = count_of(environment, launcher.world).value_or(1);
  if (own_world > 1 && is_translated(environment, launcher)) return {};
  for (const auto& row : launchers()) {
    const bool step = row.announced && !in_interactive_slurm_step(environment);
    if ((row.mpi != UsesMpi::always && !step) || !row.world) continue;
    const int world = count_of(environment, row.world).value_or(1);
    if (world == 1) continue;
    const auto hint =
        format("unset RANK and WORLD_SIZE, which something left behind, or say --launcher {}", row.name);
    if (own_world == 1)
      return {format("{} says that this process is the only one, but {}: {} would each train alone",
                     quote(environment, launcher.world), quote(environment, row.world), world),
              hint + kAlone};
    // of as many ranks, but another one: several would take the same place
    if (own_world == world && is_set(environment, row.rank))
      return {format("{} says which of {} ranks this is, but {} says otherwise: several would be one rank",
                     quote(environment, launcher.rank), world, quote(environment, row.rank)),
              hint + "; --launcher torchrun overrides this"};
  }
  return {};
}

}  // namespace lockstep::launch
