#include "base/error.h"
#include "cli/options.h"

namespace lockstep::cli {

int run_config(const std::vector<std::string>& args) {
  std::string path;
  std::vector<std::string> sets;
  Options options("config", "every key of a config, its value and where it came from",
                  {"lockstep config configs/mnist.yaml --set train.epochs=3"});
  options.positional("CONFIG.yaml", path, "the config file");
  options.add("set", sets, "KEY=VALUE", "overrule a key; may be given again");
  if (!options.parse(args)) return kDone;
  throw Error("not yet");
}

}  // namespace lockstep::cli
