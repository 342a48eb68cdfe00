// lockstep config: every key, its value and where it came from; the schema and the reference page.
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/plugins/tables.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "trainer/cli/options.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"

namespace lockstep::cli {
namespace {

int print_text(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kDone;
}

// Reading a config of somebody else's runs nothing of theirs.
void require_own_libraries(const Settings& settings) {
  for (const auto* key : config::selectors()) {
    const auto name = config::chosen_name(settings, key->path);
    if (base::names_library(name))
      base::require_own_library(base::library_name(name).path, "`lockstep config`");
  }
}

config::Loaded load(const std::string& path, const std::vector<std::string>& sets) {
  const config::ConfigText config =
      path.empty() ? config::ConfigText{"defaults", ""} : config::read_config_text(path);
  const auto load = [&](config::Libraries libraries) {
    return config::load_settings(config.text, config.name, sets, launch::current_environment(), libraries);
  };
  require_own_libraries(load(config::Libraries::leave).settings);
  return load(config::Libraries::load);
}

}  // namespace

int run_config(const std::vector<std::string>& args) {
  std::string path;
  std::vector<std::string> sets;
  bool changed = false;
  bool schema = false;
  bool reference_page = false;
  Options options("config", "shows every key of a config, its value and its origin",
                  {"lockstep config configs/mnist.yaml --set train.epochs=3",
                   "lockstep config runs/mnist --changed           # the keys a run changed",
                   "lockstep config                                # every key's default",
                   "lockstep config --schema > lockstep.schema.json"});
  options.positional("CONFIG.yaml", path, "the config file or a run folder; the defaults if omitted", false);
  options.add("set", sets, "KEY=VALUE", "override a key, as in train.epochs=3; repeatable");
  options.flag("changed", changed, "only the keys that differ from their default");
  options.flag("schema", schema,
               "print a JSON Schema (draft 2020-12) for editors, including what the config's plug-ins add");
  options.flag("reference", reference_page, "print the reference of all keys in Markdown");
  for (const auto* key : config::selectors())
    options.note("values of these keys (or the path of a shared library that adds one)", key->path,
                 base::join(config::row_names(*key), ", "));
  if (!options.parse(args)) return kDone;
  const config::Loaded loaded = load(path, sets);
  if (schema) return print_text(config::json_schema());
  if (reference_page) return print_text(config::reference());
  for (const std::string& warning : loaded.warnings) log::warning(warning);
  if (changed) return print_text(config::changed_yaml(loaded));
  return print_text(config::to_yaml(loaded.settings, loaded.origins));
}

}  // namespace lockstep::cli
