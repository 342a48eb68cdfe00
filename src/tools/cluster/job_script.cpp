#include "tools/cluster/job_script.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "tools/cluster/directives.h"
#include "tools/cluster/quote.h"
#include "tools/cluster/resources.h"

namespace lockstep::cluster {
namespace {

std::string assign(const std::string& name, const std::string& value) {
  return format("export {}={}\n", name, quoted(value));
}

std::string home_of(const JobRequest& request) {
  const auto home = request.home.empty() ? base::home_folder() : request.home;
  if (home.empty())
    throw InputError("the job scripts of lockstep are not found", "", "set LOCKSTEP_HOME to where they are");
  return std::filesystem::absolute(home).string();  // the job may begin in another folder
}

// a job's own folder where the site names one, else what every machine has
std::string scratch_of(const Site& site) {
  constexpr const char* kOfAny = "${TMPDIR:-/tmp}";
  return site.scratch.empty() ? kOfAny : format("${{{}:-{}}}", site.scratch, kOfAny);
}

// lockstep_train takes a word with a dash in front for an option
std::string as_path(const std::string& config) {
  return config.starts_with('-') ? "./" + config : config;
}

std::vector<std::string> settings(const std::vector<std::string>& sets) {
  std::vector<std::string> words;
  for (const auto& set : sets) words.insert(words.end(), {"--set", set});
  return words;
}

std::string head(const Site& site, const JobRequest& request, const Resources& given) {
  std::string text = "#!/bin/bash\n";
  const char* mark = site.slurm() ? "#SBATCH " : "#PBS ";
  for (const auto& line : directives(site, request, given)) text += mark + line + "\n";
  return text;
}

// Where lockstep is, how ranks lie here.
std::string preamble(const Site& site, const JobRequest& request, const Resources& given) {
  std::string text = site.slurm() ? "trap EARLY_SIGNAL=USR1 USR1\n" : "cd \"$PBS_O_WORKDIR\" || exit 2\n";
  text += assign("LOCKSTEP_SCRIPT", "");  // no other than this one may go on in its place
  text += assign("LOCKSTEP_HOME", home_of(request));
  text += assign("LOCKSTEP_RANKS_PER_NODE", format("{}", given.ranks));
  text += assign("LOCKSTEP_CPUS_PER_RANK", format("{}", given.cores_per_rank));
  if (site.threads_per_core > 0)
    text += assign("LOCKSTEP_THREADS_PER_CORE", format("{}", site.threads_per_core));
  if (!site.start.empty()) text += assign("LOCKSTEP_START", site.start);
  if (!site.srun_mpi.empty()) text += assign("LOCKSTEP_SRUN_MPI", site.srun_mpi);
  text += format("export LOCKSTEP_SCRATCH={}\n", scratch_of(site));
  for (const auto& [name, value] : request.variables) text += assign(name, value);
  return text + "unset SET CONFIG  # what is trained stands below, whatever came along\n";
}

std::string load_modules(const Site& site) {
  if (site.modules.empty()) return "";
  std::string text = "command -v module >/dev/null || . /etc/profile\n";
  for (const auto& module : site.modules) text += format("module load {} || exit 2\n", quoted(module));
  return text;
}

std::string choose_settings(const Site& site, const JobRequest& request) {
  if (request.sweep.empty()) return "";
  const char* index = site.slurm() ? "SLURM_ARRAY_TASK_ID" : "PBS_ARRAY_INDEX";
  std::string text = format("case ${{{}:-0}} in\n", index);
  for (size_t i = 0; i < request.sweep.size(); ++i)
    text += format("  {}) settings=({}) ;;\n", i, quoted(settings(request.sweep[i])));
  return text + format("  *) die \"{}=${}: this array has the tasks 0 to {}\" ;;\nesac\n", index, index,
                       request.sweep.size() - 1);
}

std::string train(const JobRequest& request) {
  std::vector<std::string> words = {as_path(request.config)};
  const auto sets = settings(request.sets);
  words.insert(words.end(), sets.begin(), sets.end());
  return format("lockstep_train {}{}\n", quoted(words), request.sweep.empty() ? "" : " \"${settings[@]}\"");
}

}  // namespace

std::string render(const Site& site, const JobRequest& request) {
  const auto given = resources(site, request);
  return head(site, request, given) + "\n" + preamble(site, request, given) +
         ". \"$LOCKSTEP_HOME/job_scripts/lockstep.sh\" || exit 2\nrecord_begin\n" + load_modules(site) +
         "\n" + choose_settings(site, request) + train(request);
}

}  // namespace lockstep::cluster
