#include "train/job_config.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "base/pack.h"
#include "base/text.h"
#include "config/expand.h"
#include "config/keys.h"
#include "config/value.h"

namespace lockstep::train {
namespace {

// what rank 0's work gives, on every rank; its InputError is thrown on every rank
std::vector<std::string> from_rank_zero(const Runtime& runtime,
                                        const std::function<std::vector<std::string>()>& work) {
  if (!runtime.has_mpi()) return work();
  std::string packed;
  if (runtime.job().rank == 0) {
    try {
      std::vector<std::string> result = work();
      result.insert(result.begin(), "read");
      packed = pack_texts(result);
    } catch (const InputError& error) {
      packed = pack_texts({"refused", pack_error(error)});
    }
  }
  std::vector<std::string> result = unpack_texts(runtime.broadcast(packed));
  if (result.at(0) == "refused") throw_packed_error(result.at(1));
  result.erase(result.begin());
  return result;
}

// name, value, name, value, ... of the variables that the config and the command line mention
std::vector<std::string> variables_in(const std::string& text, const Environment& environment) {
  std::vector<std::string> found;
  for (const std::string& name : config::names_in_braces(text)) {
    const auto variable = environment.find(name);
    if (variable != environment.end()) found.insert(found.end(), {name, variable->second});
  }
  return found;
}

// A node may keep its data at a place of its own, and the run's folder is rank 0's alone.
bool is_own_path(const std::string& key) {
  static constexpr std::array<const char*, 3> kPaths = {"data.root", "data.stage", "run.dir"};
  return std::find(kPaths.begin(), kPaths.end(), key) != kPaths.end();
}

}  // namespace

std::string launcher_in(const std::string& path, const std::vector<std::string>& sets) {
  const ConfigText read = read_config_text(path);
  return load_settings(read.text, read.name, sets, current_environment()).settings.launch.launcher;
}

comm::Facts facts_of(const Settings& settings) {
  comm::Facts facts;
  for (const config::Key& key : config::keys()) {
    if (!is_own_path(key.path)) facts.emplace_back(key.path, config::value_text(key, settings));
  }
  return facts;
}

Loaded load_for_job(const Runtime& runtime, const std::string& path, const std::vector<std::string>& sets) {
  const Environment own = current_environment();
  const auto parts = from_rank_zero(runtime, [&] {
    const ConfigText read = read_config_text(path);
    std::vector<std::string> out = {read.name, read.text};
    const auto variables = variables_in(read.text + join(sets, "\n"), own);
    out.insert(out.end(), variables.begin(), variables.end());
    return out;
  });
  Environment shared;
  for (size_t i = 2; i + 1 < parts.size(); i += 2) shared[parts[i]] = parts[i + 1];
  Loaded loaded = load_settings(parts[1], parts[0], sets, shared);
  // a node's own variables win here, rank 0's fill the gaps: nothing that loaded above can fail now
  Environment here = own;
  here.insert(shared.begin(), shared.end());
  loaded.settings.data.stage = load_settings(parts[1], parts[0], sets, here).settings.data.stage;
  return loaded;
}

}  // namespace lockstep::train
