#include "course/workshop/judges/launched.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "course/workshop/judge.h"
#include "course/workshop/judges/directives.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

struct Option {
  const char* name;
  std::optional<std::string> Launch::*value;
};

constexpr Option kOfSrun[] = {
    {"--ntasks-per-node", &Launch::ranks_per_node},
    {"--tasks-per-node", &Launch::ranks_per_node},
    {"--ntasks", &Launch::ranks},
    {"--nodes", &Launch::nodes},
    {"-n", &Launch::ranks},
    {"-N", &Launch::nodes},
};

// of Open MPI's and MPICH's; where -N is of no use it is a node's ranks
constexpr Option kOfMpirun[] = {
    {"--npernode", &Launch::ranks_per_node},
    {"-npernode", &Launch::ranks_per_node},
    {"-ppn", &Launch::ranks_per_node},
    {"-N", &Launch::ranks_per_node},
    {"--np", &Launch::ranks},
    {"-np", &Launch::ranks},
    {"-n", &Launch::ranks},
};

constexpr std::string_view kLaunchers[] = {"srun", "mpirun", "mpiexec"};

bool is_launcher(const std::string& word) {
  return std::find(std::begin(kLaunchers), std::end(kLaunchers), fs::path(word).filename().string()) !=
         std::end(kLaunchers);
}

std::vector<std::string> words_of(const std::string& call) {
  std::istringstream stream(call);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "--nodes" or "--nodes=2"; "-n", "-n4" or "-n=4"
bool is_named(const std::string& word, const std::string& name) {
  if (!word.starts_with(name)) return false;
  const auto rest = word.substr(name.size());
  return rest.empty() || rest.front() == '=' || (name.size() == 2 && std::isdigit(rest.front()) != 0);
}

const Option* option_of(const std::string& launcher, const std::string& word) {
  const auto find = [&](const auto& options) -> const Option* {
    for (const auto& option : options) {
      if (is_named(word, option.name)) return &option;
    }
    return nullptr;
  };
  return launcher == "srun" ? find(kOfSrun) : find(kOfMpirun);
}

// "-n4", "-n 4", "--ntasks=4": what follows the name in the same word, or else in the next one
std::string option_value(const std::string& word, const Option& option, const std::string& next) {
  const auto rest = word.substr(std::string(option.name).size());
  if (rest.empty()) return next;
  return rest.front() == '=' ? rest.substr(1) : rest;
}

void require_count(const std::optional<std::string>& asked, int wanted, const char* what) {
  if (!asked || whole_number(asked->substr(0, asked->find('-'))) == wanted) return;
  throw NotYet(format("the launcher is told {} for the {}, and the job has {}", *asked, what, wanted),
               "without options of its own, a launcher starts as many ranks as the job asked for");
}

}  // namespace

void make_stand_in(const std::string& folder, const std::string& name, const std::string& then) {
  fs::create_directories(folder);
  const auto path = fs::path(folder) / name;
  std::ofstream(path) << "#!/bin/bash\necho \"${0##*/} $*\" >>\"${0%/*}/calls\"\n" << then;
  fs::permissions(path, fs::perms::owner_all);
}

std::vector<std::string> noted_calls(const std::string& folder) {
  std::vector<std::string> calls;
  std::ifstream file(fs::path(folder) / "calls");
  for (std::string line; std::getline(file, line);) calls.push_back(line);
  return calls;
}

void forget_calls(const std::string& folder) {
  fs::remove(fs::path(folder) / "calls");
}

Launch launch_of(const std::string& call) {
  Launch launch;
  const auto words = words_of(call);
  const auto program = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word == "lockstep" || word.ends_with("/lockstep");
  });
  launch.program.assign(program, words.end());
  for (auto word = words.begin(); word != program; ++word) {
    const bool is_last = word + 1 == words.end();
    if (word != words.begin() && is_launcher(*word)) launch.inner = *word;
    if (const auto* option = option_of(words.front(), *word))
      launch.*(option->value) = option_value(*word, *option, is_last ? "" : *(word + 1));
  }
  return launch;
}

void require_all_ranks(const Launch& launch, int ranks, int nodes) {
  if (!launch.inner.empty())
    throw NotYet(
        format("each of {} ranks would start {}, which starts ranks of its own", ranks, launch.inner),
        "one launcher is enough");
  require_count(launch.ranks, ranks, "number of ranks");
  require_count(launch.nodes, nodes, "number of nodes");
  require_count(launch.ranks_per_node, ranks / nodes, "ranks of each node");
}

}  // namespace lockstep::workshop
