#include "tools/cluster/unheard.h"

#include <unistd.h>

#include <algorithm>

#include "lockstep/base/program.h"
#include "lockstep/base/words.h"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

// To sbatch a variable is more than the script's line.
struct Overruling {
  const char* variable;
  Words options;  // the variable counts where the script has none of these
};
const Overruling kOverruling[] = {{"SBATCH_ACCOUNT", {"--account", "-A"}},
                                  {"SBATCH_CONSTRAINT", {"--constraint", "-C"}},
                                  {"SBATCH_CPUS_PER_GPU", {"--cpus-per-task", "-c"}},
                                  {"SBATCH_GPUS*", {"--gpus-per-node"}},
                                  {"SBATCH_GRES", {"--gres", "--gpus-per-node"}},
                                  {"SBATCH_JOB_NAME", {"--job-name"}},
                                  {"SBATCH_MEM_PER_*", {"--mem"}},
                                  {"SBATCH_NO_REQUEUE", {"--requeue"}},
                                  {"SBATCH_OPEN_MODE", {"--open-mode"}},
                                  {"SBATCH_OUTPUT", {"--output"}},
                                  {"SBATCH_PARTITION", {"--partition", "-p"}},
                                  {"SBATCH_QOS", {"--qos", "-q"}},
                                  {"SBATCH_RESERVATION", {"--reservation"}},
                                  {"SBATCH_SIGNAL", {"--signal"}},
                                  {"SBATCH_TIMELIMIT", {"--time"}}};

// A log in two files, a job that waits for its end, an array that nobody asked for.
const Words kNever = {"SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_WAIT", "SBATCH_ARRAY_INX"};

// sbatch hands its environment on to the job, whose scripts ask squeue, too.
const Words kOfAnotherJob = {
    "SQUEUE_*",        "LOCKSTEP_RESTART", "SLURM_ARRAY_*",        "SLURM_CPUS_*",
    "SLURM_GPUS*",     "SLURM_JOBID",      "SLURM_JOB_*",          "SLURM_LOCALID",
    "SLURM_MEM_PER_*", "SLURM_NNODES",     "SLURM_NODEID",         "SLURM_NODELIST",
    "SLURM_NPROCS",    "SLURM_NTASKS*",    "SLURM_PROCID",         "SLURM_RESTART_COUNT",
    "SLURM_STEP*",     "SLURM_SUBMIT_*",   "SLURM_TASKS_PER_NODE", "SLURM_TRES_PER_TASK"};

const Words kOfQsub = {"PBS_DPREFIX"};  // what begins a directive

// "--mem=4G" -> "--mem", "-C gpu" -> "-C"
Words options_of(const std::string& script) {
  constexpr const char* kMark = "#SBATCH ";
  Words options;
  for (const auto& line : base::split(script, '\n')) {
    if (!line.starts_with(kMark)) continue;
    const auto text = base::trimmed(line.substr(std::char_traits<char>::length(kMark)));
    options.push_back(text.starts_with("--") ? text.substr(0, text.find_first_of("= ")) : text.substr(0, 2));
  }
  return options;
}

Words unheard_by_sbatch(const std::string& script) {
  auto patterns = kNever;
  patterns.insert(patterns.end(), kOfAnotherJob.begin(), kOfAnotherJob.end());
  const auto said = options_of(script);
  for (const auto& row : kOverruling) {
    if (std::ranges::find_first_of(said, row.options) != said.end()) patterns.emplace_back(row.variable);
  }
  return patterns;
}

}  // namespace

const std::vector<std::string>& unheard_by_queries() {
  static const Words patterns = {"SQUEUE_*",         "SACCT_*",        "SINFO_*",          "SCONTROL_*",
                                 "SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"};
  return patterns;
}

std::vector<std::string> unheard_by_submission(const std::string& scheduler, const std::string& script) {
  const auto patterns = scheduler == "slurm" ? unheard_by_sbatch(script) : kOfQsub;
  Words names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    if (base::is_among(name, patterns)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::cluster
