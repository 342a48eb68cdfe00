#include "trainer/setup/job_config.h"

#include <functional>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/text.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"
#include "trainer/config/value.h"

namespace lockstep::train {
namespace {

// What rank 0's work gives, on every rank; its error, too.
std::vector<std::string> from_rank_zero(const launch::Runtime& runtime,
                                        const std::function<std::vector<std::string>()>& work) {
  if (!runtime.has_mpi()) return work();
  std::string outcome;
  if (runtime.job().rank == 0) outcome = base::pack_outcome([&] { return base::pack_texts(work()); });
  return base::unpack_texts(base::unpack_outcome(runtime.broadcast(outcome)));
}

// name, value, name, value, ... of the variables that the config and the command line mention
std::vector<std::string> variables_in(const std::string& text, const launch::Environment& environment) {
  std::vector<std::string> found;
  for (const std::string& name : config::names_in_braces(text)) {
    const auto variable = environment.find(name);
    if (variable != environment.end()) found.insert(found.end(), {name, variable->second});
  }
  return found;
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
  const auto handed = own.find(kHandedConfig);
  const auto parts = from_rank_zero(runtime, [&] {
    if (handed != own.end()) return base::unpack_texts(base::read_text("/proc/self/fd/" + handed->second));
    const config::ConfigText read = config::read_config_text(path);
    std::vector<std::string> out = {read.name, read.text};
    const auto variables = variables_in(read.text + base::join(sets, "\n"), own);
    out.insert(out.end(), variables.begin(), variables.end());
    return out;
  });
  launch::Environment shared;
  for (size_t i = 2; i + 1 < parts.size(); i += 2) shared[parts[i]] = parts[i + 1];
  config::Loaded loaded = config::load_settings(parts[1], parts[0], sets, shared);
  // a node's own variables win here, rank 0's fill the gaps: nothing that loaded above can fail now
  launch::Environment here = own;
  here.insert(shared.begin(), shared.end());
  loaded.settings.data.stage = config::load_settings(parts[1], parts[0], sets, here).settings.data.stage;
  return {std::move(loaded), base::pack_texts(parts)};
}

}  // namespace lockstep::train
