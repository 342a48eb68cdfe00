// lockstep status: what became of a run, in words and as an exit status.
#include "lockstep/run_folder/status.h"
#include "lockstep/base/error.h"
#include "lockstep/base/output.h"
#include "lockstep/cli/options.h"

namespace lockstep::cli {

int run_status(const std::vector<std::string>& args) {
  std::string folder;
  Options options("status",
                  "what became of a run: 0 done, 1 failed, 3 still running, 4 stopped on request, 75 stopped "
                  "early (run me again)",
                  {"lockstep status runs/mnist"});
  options.positional("RUN_FOLDER", folder, "the run's folder");
  if (!options.parse(args)) return kDone;
  const auto verdict = run_folder::judge(folder);
  output::line(verdict.text);
  return verdict.exit_status;
}

}  // namespace lockstep::cli
