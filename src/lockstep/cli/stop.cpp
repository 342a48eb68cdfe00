#include "lockstep/base/error.h"
#include "lockstep/cli/options.h"
#include "lockstep/train/run.h"

namespace lockstep::cli {

int run_stop(const std::vector<std::string>& args) {
  std::string folder;
  train::AskOptions ask;
  bool no_wait = false;
  Options options("stop",
                  "asks a run to stop with a checkpoint, on any scheduler or none; nothing restarts it",
                  {"lockstep stop runs/mnist", "lockstep stop runs/mnist --no-wait"});
  options.positional("RUN_FOLDER", folder, "the run's folder");
  options.add("timeout", ask.seconds, "SECONDS", "how long to wait until it is done (default 600)");
  options.flag("no-wait", no_wait, "ask and leave");
  if (!options.parse(args)) return kDone;
  ask.wait = !no_wait;
  return train::stop(folder, ask);
}

}  // namespace lockstep::cli
