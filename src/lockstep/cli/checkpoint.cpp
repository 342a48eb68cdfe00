#include "lockstep/base/error.h"
#include "lockstep/cli/options.h"
#include "lockstep/train/run.h"

namespace lockstep::cli {

int run_checkpoint(const std::vector<std::string>& args) {
  std::string folder;
  train::AskOptions ask;
  bool no_wait = false;
  Options options("checkpoint", "asks a run for a checkpoint now; it goes on",
                  {"lockstep checkpoint runs/mnist", "lockstep checkpoint runs/mnist --no-wait"});
  options.positional("RUN_FOLDER", folder, "the run's folder");
  options.add("timeout", ask.seconds, "SECONDS", "how long to wait until it is done (default 600)");
  options.flag("no-wait", no_wait, "ask and leave");
  if (!options.parse(args)) return kDone;
  ask.wait = !no_wait;
  return train::checkpoint(folder, ask);
}

}  // namespace lockstep::cli
