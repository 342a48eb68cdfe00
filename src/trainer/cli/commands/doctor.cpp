// lockstep doctor: what is wrong with this node, this job and its network, and what to do about it.
#include "tools/doctor/doctor.h"
#include "lockstep/base/error.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_doctor(const std::vector<std::string>& args) {
  doctor::DoctorSettings settings;
  Options options("doctor", "finds problems with this node, job or network, and suggests fixes",
                  {"lockstep doctor", "mpirun -n 4 lockstep doctor", "srun lockstep doctor --json"});
  options.flag("json", settings.json, "print JSON, for programs; the schema is in docs/reference/doctor.md");
  options.launcher(settings.launcher);
  options.positional("CONFIG.yaml", settings.config, "checks the data and run folders of this config", false);
  options.add("data", settings.data, "FOLDER", "the data folder that all nodes read (default: the config's)");
  options.add("runs", settings.runs, "FOLDER", "the folder for runs (default: the config's, else runs)");
  options.add("device", settings.device, "NAME", "auto, cpu or cuda (default auto)");
  if (!options.parse(args)) return kDone;
  const auto known = versions();
  settings.versions = {known.begin(), known.end()};
  settings.environment = launch::current_environment();
  return doctor::run(settings);
}

}  // namespace lockstep::cli
