#include "tools/doctor/node/collect.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string_view>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/layout.h"

namespace lockstep::doctor {
namespace {

constexpr Collector kCollectors[] = {
    {"environment", collect_environment},
    {"cores", collect_cores},
    {"memory", collect_memory},
    {"limits", collect_limits},
    {"walls", collect_walls},
    {"host name", collect_host},
    {"GPUs", collect_gpus},
    {"libtorch", collect_libtorch},
};

// What launchers, schedulers and the libraries below are told by. Nothing else leaves the process.
constexpr std::string_view kPrefixes[] = {
    "SLURM",      "PBS_",         "OMPI_",  "PMI_",    "PMIX_",     "PALS_",  "FLUX_",  "LSB_",
    "JSM_",       "PRTE_",        "MPI",    "I_MPI_",  "UCX_",      "FI_",    "NCCL_",  "GLOO_",
    "OMP_",       "GOMP_",        "KMP_",   "MKL_",    "OPENBLAS_", "TORCH_", "CUDA_",  "LOCKSTEP_",
    "APPTAINER_", "SINGULARITY_", "HWLOC_", "MALLOC_", "ATEN_",     "DNNL_",  "ONEDNN_"};
constexpr std::string_view kNames[] = {"RANK",       "WORLD_SIZE",  "LOCAL_RANK",         "LOCAL_WORLD_SIZE",
                                       "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",        "NCPUS",
                                       "LD_PRELOAD", "TMPDIR",      "TORCHELASTIC_RUN_ID"};

// What an MPI's daemons tell each other: long, and with a job's keys in it.
constexpr std::string_view kInner[] = {"OMPI_MCA_orte_", "OMPI_MCA_pmix", "PMIX_SERVER_", "PMIX_DSTORE_",
                                       "PRTE_MCA_"};

bool concerns_a_run(std::string_view name) {
  for (const auto prefix : kInner) {
    if (name.starts_with(prefix)) return false;
  }
  for (const auto known : kNames) {
    if (name == known) return true;
  }
  for (const auto prefix : kPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

unsigned long pid_space() {
  struct stat space {};
  return ::stat("/proc/self/ns/pid", &space) == 0 ? static_cast<unsigned long>(space.st_ino) : 0;
}

}  // namespace

void collect_environment(RankFacts& facts, const DoctorSettings& settings) {
  for (const auto& [name, value] : settings.environment) {
    if (concerns_a_run(name)) facts.variables[name] = value;
  }
  facts.versions = settings.versions;
  utsname system{};
  if (::uname(&system) == 0) facts.versions["kernel"] = system.release;
}

RankFacts collect(const DoctorSettings& settings, const std::function<Stage(const char* name)>& begin) {
  RankFacts facts;
  facts.job.host = launch::current_surroundings({}).host;
  facts.pid = ::getpid();
  facts.pid_space = pid_space();
  facts.machine = launch::own_seat(facts.job).machine;
  for (const Collector& collector : kCollectors) {
    const auto stage = begin(collector.name);
    try {
      collector.collect(facts, settings);
    } catch (const std::exception& error) {
      facts.failed[collector.name] = error.what();
    }
  }
  facts.clock = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return facts;
}

}  // namespace lockstep::doctor
