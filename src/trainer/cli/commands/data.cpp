// lockstep data list|fetch|verify: the known data sets, on this disk and on their mirrors.
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/known_sets/known_sets.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

struct DataArguments {
  std::vector<data::KnownSet> sets;
  std::string root;
  data::FetchOptions fetch;
};

struct DataAction {
  const char* name;
  void (*run)(const DataArguments&);
};
constexpr DataAction kDataActions[] = {
    {"list", [](const DataArguments& asked) { known_sets::list(asked.sets, asked.root); }},
    {"fetch", [](const DataArguments& asked) { known_sets::fetch(asked.sets, asked.root, asked.fetch); }},
    {"verify", [](const DataArguments& asked) { known_sets::verify(asked.sets, asked.root); }}};

}  // namespace

int run_data(const std::vector<std::string>& args) {
  std::string action, set;
  DataArguments asked;
  Options options(
      "data", "list, fetch and verify the known data sets",
      {"lockstep data list", "lockstep data fetch mnist", "lockstep data verify pima --root my/data"});
  options.positional("list|fetch|verify", action, "what to do");
  options.positional("SET", set, "one set; without it all of them", false);
  options.add("root", asked.root, "DIR", "the set's folder (default: data/SET)");
  options.add("mirror", asked.fetch.mirrors, "URL", "fetch from here instead; may be given again");
  if (!options.parse(args)) return kDone;
  asked.sets = set.empty() ? data::known_sets() : std::vector{data::known_set(set)};
  asked.fetch.progress = ::isatty(STDERR_FILENO) == 1;
  if (!asked.root.empty() && set.empty())
    throw InputError("--root needs a SET", "", "lockstep data " + action + " mnist --root DIR");
  for (const auto& row : kDataActions) {
    if (action != row.name) continue;
    row.run(asked);
    return kDone;
  }
  throw InputError(format("data cannot '{}'", base::printable(action)), "",
                   "lockstep data list, fetch or verify");
}

}  // namespace lockstep::cli
