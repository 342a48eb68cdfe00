#include "tools/cluster/scheduler.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "tools/cluster/quote.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

std::string find_in(const std::vector<std::string>& folders, const std::string& name) {
  for (const auto& folder : folders) {
    const auto path = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code none;
    if (fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

std::string find_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  return find_in(base::split(path ? path : "", ':'), name);
}

// PBS is often off the PATH
std::string pbs_folder() {
  const char* pbs = std::getenv("PBS_EXEC");
  return std::string(pbs && *pbs ? pbs : "/opt/pbs") + "/bin";
}

// slurm-wlm-torque's qsub: it hands what it gets to the sbatch beside it
bool wraps_sbatch(const std::string& qsub) {
  std::string text(20'000, '\0');
  std::ifstream(qsub).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text.starts_with("#!") && text.find("/sbatch\"") != std::string::npos;
}

std::string of_cluster(const Scheduler& scheduler) {
  return scheduler.cluster.empty() ? "" : "--clusters=" + quoted(scheduler.cluster) + " ";
}

}  // namespace

void check_scheduler(const std::string& name, const std::string& where, const std::string& hint) {
  if (name == "pbs" || name == "slurm") return;
  throw InputError(format("there is no scheduler '{}'", base::printable(name)), where, hint);
}

std::string find_command(const std::string& name) {
  const auto found = find_on_path(name);
  return found.empty() ? find_in({pbs_folder()}, name) : found;
}

std::string command_word(const std::string& name) {
  if (!find_on_path(name).empty()) return name;
  const auto found = find_command(name);
  return found.empty() ? name : found;
}

std::string guess_scheduler() {
  const auto qsub = find_command("qsub");
  const bool slurm = !find_command("sbatch").empty(), pbs = !qsub.empty() && !(slurm && wraps_sbatch(qsub));
  if (slurm != pbs) return slurm ? "slurm" : "pbs";
  throw InputError(slurm ? "both sbatch and qsub are here: which scheduler is meant?"
                         : "there is neither sbatch nor qsub here",
                   "PATH",
                   slurm
                       ? "add --scheduler slurm or --scheduler pbs, or a --site"
                       : "submit on a login node of the cluster; --dry-run --scheduler slurm shows the job");
}

std::string task_id(const std::string& scheduler, const std::string& array, size_t index) {
  if (scheduler == "slurm") return format("{}_{}", array, index);
  const auto bracket = array.find("[]");
  return bracket == std::string::npos
             ? array
             : array.substr(0, bracket + 1) + std::to_string(index) + array.substr(bracket + 1);
}

std::string array_of(const std::string& task) {
  const auto open = task.find('['), close = task.find(']');
  if (open == std::string::npos || close == std::string::npos) return task.substr(0, task.find('_'));
  return task.substr(0, open + 1) + task.substr(close);
}

std::string how_to_look(const Scheduler& scheduler, const std::string& job) {
  return scheduler.slurm() ? "squeue " + of_cluster(scheduler) + "--jobs=" + job : "qstat " + quoted(job);
}

std::string how_to_cancel(const Scheduler& scheduler, const std::string& job) {
  return (scheduler.slurm() ? "scancel " + of_cluster(scheduler) : "qdel ") + quoted(job);
}

std::string log_of(const std::string& scheduler, const std::string& name, const std::string& job) {
  if (scheduler == "slurm") return format("{}-{}.out", name, job);
  const auto number = job.substr(0, job.find_first_not_of("0123456789"));
  const auto bracket = job.find('[');
  const auto index =
      bracket == std::string::npos ? "" : "." + job.substr(bracket + 1, job.find(']') - bracket - 1);
  return format("{}.o{}{}", name, number, index);
}

}  // namespace lockstep::cluster
