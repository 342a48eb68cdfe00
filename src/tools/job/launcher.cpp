// The command that starts the ranks: srun, Open MPI, PALS or Hydra.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/job/job.h"

namespace lockstep::job {
namespace {

using Words = std::vector<std::string>;

enum class Family { open_mpi, open_mpi_5, pals, hydra };  // MPICH and Intel MPI have hydra

Family family_of(const std::string& command, const RunCommand& run) {
  const auto answer = run({command, "--version"});
  const auto text = (answer.output + "\n" + answer.errors).substr(0, 400);
  if (contains(text, "PRRTE") || contains(text, "prte")) return Family::open_mpi_5;
  if (const auto at = text.find("Open MPI) "); at != std::string::npos)
    return std::atoi(text.c_str() + at + 10) >= 5 ? Family::open_mpi_5 : Family::open_mpi;
  if (contains(text, "Open MPI") || contains(text, "OpenRTE")) return Family::open_mpi;
  return contains(text, "PALS") ? Family::pals : Family::hydra;
}

bool is_here(const std::string& command) {
  return !cluster::find_command(command).empty();
}

std::string choose_command(const Start& start, const Environment& environment, const RunCommand& run) {
  auto chosen = value(environment, "LOCKSTEP_START");
  if (!chosen.empty() && chosen != "srun" && chosen != "mpirun" && chosen != "mpiexec")
    throw InputError(
        format("LOCKSTEP_START must be srun, mpirun or mpiexec (got {})", base::printable(chosen)),
        "LOCKSTEP_START");
  if (!chosen.empty() && !is_here(chosen))
    throw InputError(format("{} is not on PATH", chosen), "LOCKSTEP_START", "load its module");
  if (!chosen.empty()) return chosen;
  if (start.job.is_slurm() && is_here("srun")) return "srun";
  const bool mpirun = is_here("mpirun"), mpiexec = is_here("mpiexec");
  if (!mpirun && !mpiexec)
    throw InputError("there is no srun, mpirun or mpiexec on PATH", "PATH", "load an MPI module");
  if (!mpiexec) return "mpirun";
  return mpirun && family_of("mpirun", run) <= Family::open_mpi_5 ? "mpirun" : "mpiexec";
}

struct Builder {
  const Start& start;
  Environment& environment;
  const RunCommand& run;
  const Layout& layout = start.layout;

  Words srun() {
    auto width = layout.cores_per_rank * layout.threads_per_core;
    const auto per_node = layout.ranks_per_node;
    if (per_node > 0 && per_node * width > layout.cpus_per_node)
      width = std::max<int64_t>(1, layout.cpus_per_node / per_node);
    // srun does not inherit sbatch's --cpus-per-task; a rank that fails ends the step
    Words words = {"srun", format("--job-name={}", kStepName), "--kill-on-bad-exit=1",
                   format("--cpus-per-task={}", width)};
    if (start.allocation.components > 1)
      words.push_back(format("--het-group=0-{}", start.allocation.components - 1));
    if (per_node > 0)
      add(words, {format("--ntasks={}", layout.ranks), format("--ntasks-per-node={}", per_node)});
    if (per_node > layout.cpus_per_node) words.emplace_back("--overcommit");
    if (const auto mpi = value(environment, "LOCKSTEP_SRUN_MPI"); !mpi.empty())
      words.push_back("--mpi=" + mpi);
    // With Slurm 22.05's default no node waits for the others in MPI_Init; an early message kills its reader.
    environment["SLURM_PMIX_FENCE"] = value(environment, "SLURM_PMIX_FENCE", "ring");
    if (start.relaunches == 0) return words;
    Words names;
    for (const auto& node : start.allocation.nodes) names.push_back(node.name);
    add(words, {"--overlap", format("--nodes={}", layout.nodes), "--nodelist=" + base::join(names, ",")});
    if (per_node == 0) words.push_back(format("--ntasks={}", layout.ranks));
    return words;
  }

  Words open_mpi(const std::string& command, bool is_5) {
    Words words = {command};
    is_5 ? add_version_5(words) : add_version_4(words);
    add(words, {"-n", format("{}", layout.ranks)});
    if (start.job.is_slurm()) {
      if (start.relaunches > 0) environment["SLURM_OVERLAP"] = "1";  // for mpirun's own srun
      return words;
    }
    const bool has_tm = knows_pbs();
    if (!has_tm || start.relaunches > 0) add(words, {"--hostfile", node_file()});
    if (!has_tm && layout.nodes > 1) {
      add(words, {is_5 ? "--prtemca" : "--mca", is_5 ? "plm_ssh_agent" : "plm_rsh_agent", start.agent});
      pass_environment(words);
    }
    return words;
  }

  Words hydra(const std::string& command) {
    // hydra seldom supports PBS, and would use ssh, which PBS does not control
    // Slurm may set these itself, and so does a start before this one
    const bool is_own = start.job.is_slurm() || value(environment, "HYDRA_LAUNCHER_EXEC") == start.agent;
    const bool is_chosen = !is_own && std::ranges::any_of(environment, [](const auto& entry) {
      return !entry.second.empty() &&
             base::is_among(entry.first, {"HYDRA_LAUNCHER*", "HYDRA_BOOTSTRAP*", "I_MPI_HYDRA_BOOTSTRAP*"});
    });
    auto words = is_chosen ? Words{command} : without_own_gpus(command);
    add(words, {"-n", format("{}", layout.ranks)});
    if (layout.ranks_per_node > 0) add(words, {"-ppn", format("{}", layout.ranks_per_node)});
    if (start.job.is_slurm()) return words;
    add(words, {"-f", node_file()});
    if (layout.nodes == 1) return words;
    if (is_chosen) {
      if (environment.contains("CUDA_VISIBLE_DEVICES"))
        say("warning: " + command + " starts all ranks with this node's CUDA_VISIBLE_DEVICES");
      return words;
    }
    if (!is_here("pbs_tmrsh"))
      throw InputError(format("without pbs_tmrsh, {} would start ranks with ssh, outside PBS", command),
                       "PATH",
                       "add PBS's commands to PATH, or set HYDRA_LAUNCHER=ssh if the site allows that");
    environment["HYDRA_LAUNCHER"] = "rsh";
    environment["HYDRA_LAUNCHER_EXEC"] = start.agent;
    if (words[0] == "env") environment["HYDRA_LAUNCHER_AUTOFORK"] = "0";  // the first node as the others
    return words;
  }

  Words pals(const std::string& command) {
    const auto per_node = layout.ranks_per_node;
    auto words = without_own_gpus(command);
    add(words, {"-n", format("{}", layout.ranks)});
    if (per_node > 0) add(words, {"--ppn", format("{}", per_node)});
    add(words, {"--depth", format("{}", layout.cores_per_rank), "--cpu-bind", "depth"});
    if (start.relaunches > 0 || per_node == 0) add(words, {"--hostfile", node_file()});
    return words;
  }

  // Hydra and PALS pass their environment on, but each node has its own GPUs, which the scheduler sets there.
  Words without_own_gpus(const std::string& command) const {
    if (layout.nodes == 1 || value(environment, "CUDA_VISIBLE_DEVICES").empty()) return {command};
    return {"env", "-u", "CUDA_VISIBLE_DEVICES", command};
  }

  // PBS_NODEFILE stays as it is: tm and pbs_tmrsh number the nodes by their lines in it.
  std::string node_file() const {
    return value(environment, "LOCKSTEP_NODEFILE", value(environment, "PBS_NODEFILE"));
  }

  static void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

  // If a job may use more cores than it was given, all jobs on a node would be bound to the same ones. A user
  // who counts threads as cores is not bound either.
  bool is_confined() const {
    const auto& first = start.allocation.nodes.front();
    const auto given = std::max<int64_t>(1, first.cpus / layout.threads_per_core);
    const bool is_known = start.own_cores > 0 && value(environment, "LOCKSTEP_THREADS_PER_CORE") != "1";
    return is_known && start.own_cores <= given;
  }

  // A dying job gets twice 5 s to write its checkpoint. mpirun takes that time after every status but 0, even
  // with no process left, so it is told to ignore statuses.
  void add_version_4(Words& words) {
    if (start.is_training)
      add(words, {"--mca", "odls_base_sigkill_timeout", "5", "--mca", "orte_abort_on_non_zero_status", "0"});
    if (layout.ranks_per_node > 0 && is_confined())
      add(words, {"--map-by", format("ppr:{}:node:PE={}", layout.ranks_per_node, layout.cores_per_rank),
                  "--bind-to", "core:overload-allowed", "--oversubscribe"});
    else if (layout.ranks_per_node > 0)
      add(words,
          {"--map-by", format("ppr:{}:node", layout.ranks_per_node), "--bind-to", "none", "--oversubscribe"});
    else if (layout.cores_per_rank > 1 || !is_confined())
      add(words, {"--bind-to", "none"});  // the default is one core, from the first on
  }

  // Open MPI 5 has no time before SIGKILL, and refuses to share cores between ranks of several cores.
  void add_version_5(Words& words) {
    if (start.is_training) {
      const char* option = "error-nonzero-status=0";
      Words probe = {"env", "-u", "PBS_JOBID", "-u", "SLURM_JOB_ID", "-u", "SLURM_JOBID"};
      add(probe, words);
      add(probe, {"--runtime-options", option, "-n", "1", "true"});
      add(words,
          {"--runtime-options", run(probe).good() ? option : "abort-nonzero-status=0"});  // its old name
    }
    const auto per_node = layout.ranks_per_node;
    if (per_node > 0 && per_node * layout.cores_per_rank <= layout.cores_per_node && is_confined())
      add(words, {"--map-by", format("ppr:{}:node:PE={}", per_node, layout.cores_per_rank), "--bind-to",
                  "core:overload-allowed"});
    else
      add(words,
          {"--map-by", per_node > 0 ? format("ppr:{}:node:oversubscribe", per_node) : "slot:oversubscribe",
           "--bind-to", "none"});
  }

  bool knows_pbs() const {
    for (const char* info : {"ompi_info", "prte_info"}) {
      for (const auto& line : base::split(run({info, "--parsable"}).output, '\n')) {
        if (line.starts_with("mca:") && line.find(":tm:") != std::string::npos) return true;
      }
    }
    return false;
  }

  // PBS starts a task on another node with a fresh environment, so mpirun passes on what ranks need by name,
  // but not the first node's own GPUs.
  void pass_environment(Words& words) const {
    static const Words kPassed = {"PATH",  "LD_LIBRARY_PATH", "LOCKSTEP_*", "PBS_*",  "OMP_*",
                                  "KMP_*", "MKL_*",           "GLOO_*",     "NCCL_*", "UCX_*",
                                  "FI_*",  "OMPI_MCA_*",      "TORCH_*",    "CUDA_*", "TMPDIR"};
    for (const auto& [name, setting] : environment) {
      const bool is_of_node = name == "CUDA_VISIBLE_DEVICES";
      if (!setting.empty() && !is_of_node && base::is_among(name, kPassed)) add(words, {"-x", name});
    }
  }
};

}  // namespace

Words choose_launcher(const Start& start, Environment& environment, const RunCommand& run) {
  const auto command = choose_command(start, environment, run);
  if (start.allocation.components > 1 && command != "srun")
    throw InputError(format("{} reaches only the first component of a heterogeneous job", command),
                     "LOCKSTEP_START", "use srun");
  // ranks of one node need no network, on which Open MPI would listen at every interface
  if (start.layout.nodes == 1)
    environment["OMPI_MCA_btl"] = value(environment, "OMPI_MCA_btl", "^tcp,ofi,openib,uct");
  environment["OMP_NUM_THREADS"] = format("{}", start.layout.cores_per_rank);
  Builder builder{start, environment, run};
  if (command == "srun") return builder.srun();
  const auto family = family_of(command, run);
  if (family == Family::pals) return builder.pals(command);
  if (family == Family::hydra) return builder.hydra(command);
  return builder.open_mpi(command, family == Family::open_mpi_5);
}

}  // namespace lockstep::job
