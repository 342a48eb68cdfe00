// lockstep status: the state of a run, in words and as an exit status.
#include "trainer/run_folder/status.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_status(const std::vector<std::string>& args) {
  std::string folder;
  bool json = false;
  Options options("status",
                  "the state of a run: 0 done, 1 failed, 3 still running, 4 stopped on request, 75 stopped "
                  "early (run me again)",
                  {"lockstep status runs/mnist", "lockstep status runs/mnist --json"});
  options.positional("RUN_FOLDER", folder, "the run's folder");
  options.flag("json", json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  const auto verdict = run_folder::judge(folder);
  json ? static_cast<void>(output::print(to_json(verdict))) : output::line(verdict.text);
  return verdict.exit_status;
}

}  // namespace lockstep::cli
