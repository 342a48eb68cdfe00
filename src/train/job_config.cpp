#include "train/job_config.h"

#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "config/expand.h"

namespace lockstep::train {
namespace {

// "5:hello" for each, so that any byte may be in a text
std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += format("{}:", text.size()) + text;
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < packed.size();) {
    const size_t colon = packed.find(':', at);
    const size_t size = std::stoul(packed.substr(at, colon - at));
    texts.push_back(packed.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return texts;
}

// what rank 0's work gives, on every rank; its InputError is thrown on every rank
std::vector<std::string> from_rank_zero(const Runtime& runtime,
                                        const std::function<std::vector<std::string>()>& work) {
  if (!runtime.has_mpi()) return work();
  std::string packed;
  if (runtime.job().rank == 0) {
    try {
      std::vector<std::string> result = work();
      result.insert(result.begin(), "read");
      packed = pack(result);
    } catch (const InputError& error) {
      packed = pack({"refused", error.what(), error.where(), error.hint()});
    }
  }
  std::vector<std::string> result = unpack(runtime.broadcast(packed));
  if (result.at(0) == "refused") throw InputError(result.at(1), result.at(2), result.at(3));
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

}  // namespace

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
