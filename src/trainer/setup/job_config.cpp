#include "trainer/setup/job_config.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"
#include "trainer/config/value.h"
#include "trainer/config/yaml.h"

namespace lockstep::train {
namespace {

// The config's text and the variables that it and the command line mention, as JSON.
std::string read_for_all(const std::string& path, const std::vector<std::string>& sets,
                         const launch::Environment& environment) {
  const auto read = config::read_config_text(path);
  config::parse_yaml(read.text, read.name);  // refuses what is not UTF-8, which JSON cannot hold
  auto variables = nlohmann::json::object();
  for (const std::string& name : config::names_in_braces(read.text + base::join(sets, "\n"))) {
    const auto variable = environment.find(name);
    if (variable == environment.end()) continue;
    if (base::invalid_utf8(variable->second))
      throw InputError("an environment variable is not UTF-8 text", name, "set it to plain text");
    variables[name] = variable->second;
  }
  return base::as_line(nlohmann::json{{"name", read.name}, {"text", read.text}, {"variables", variables}});
}

}  // namespace

std::string launcher_in(const std::string& path, const std::vector<std::string>& sets) {
  const config::ConfigText read = config::read_config_text(path);
  return config::load_settings(read.text, read.name, sets, launch::current_environment())
      .settings.launch.launcher;
}

comm::Facts facts_of(const Settings& settings) {
  comm::Facts facts;
  for (const config::Key& key : config::keys()) {
    if (!key.rules.own_path) facts.emplace_back(key.path, config::value_text(key, settings));
  }
  return facts;
}

JobConfig load_for_job(const launch::Runtime& runtime, const std::string& path,
                       const std::vector<std::string>& sets) {
  const launch::Environment own = launch::current_environment();
  const auto read = [&] {
    const auto handed = own.find(kHandedConfig);
    return handed == own.end() ? read_for_all(path, sets, own)
                               : base::read_text("/proc/self/fd/" + handed->second);
  };
  std::string shared;
  if (!runtime.has_mpi()) {
    shared = read();
  } else {
    const auto outcome = runtime.job().rank == 0 ? base::pack_outcome(read) : "";
    shared = base::unpack_outcome(runtime.broadcast(outcome));
  }
  const auto parts = nlohmann::json::parse(shared);
  const auto name = parts["name"].get<std::string>(), text = parts["text"].get<std::string>();
  const auto variables = parts["variables"].get<launch::Environment>();
  config::Loaded loaded = config::load_settings(text, name, sets, variables);
  // a node's own variables win here, rank 0's fill the gaps: nothing that loaded above can fail now
  launch::Environment here = own;
  here.insert(variables.begin(), variables.end());
  loaded.settings.data.stage = config::load_settings(text, name, sets, here).settings.data.stage;
  return {std::move(loaded), shared};
}

}  // namespace lockstep::train
