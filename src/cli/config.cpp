#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/options.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/write.h"
#include "launch/job.h"

namespace lockstep::cli {
namespace {

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kDone;
}

}  // namespace

int run_config(const std::vector<std::string>& args) {
  std::string path;
  std::vector<std::string> sets;
  bool schema = false;
  bool reference_page = false;
  Options options("config", "every key of a config, its value and where it came from",
                  {"lockstep config configs/mnist.yaml --set train.epochs=3",
                   "lockstep config                                # every key's default",
                   "lockstep config --schema > lockstep.schema.json"});
  options.positional("CONFIG.yaml", path, "the config file; without one, the defaults", false);
  options.add("set", sets, "KEY=VALUE", "overrule a key, as in train.epochs=3; may be given again");
  options.flag("schema", schema, "print a JSON Schema (draft 2020-12) for editors");
  options.flag("reference", reference_page, "print the reference of all keys in Markdown");
  if (!options.parse(args)) return kDone;
  if (schema) return print(json_schema());
  if (reference_page) return print(reference());
  const ConfigText config = path.empty() ? ConfigText{"defaults", ""} : read_config_text(path);
  const Loaded loaded = load_settings(config.text, config.name, sets, current_environment());
  for (const std::string& warning : loaded.warnings) log::warning(warning);
  return print(to_yaml(loaded.settings, loaded.origins));
}

}  // namespace lockstep::cli
