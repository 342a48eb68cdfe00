#include "course/checks/scripts.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "lockstep/base/program.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;

std::optional<int> whole_number(const std::string& text) {
  int number = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::optional<long> seconds_of(const std::string& time, long unit) {
  const auto parts = base::split(time, ':');
  long total = 0;
  for (const auto& part : parts) {
    const auto number = whole_number(part);
    if (!number) return std::nullopt;
    total = total * 60 + *number;
  }
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  return parts.size() == 1 ? total * unit : total;
}

std::optional<long> slurm_seconds(const std::string& time) {
  const auto dash = time.find('-');
  if (dash == std::string::npos) return seconds_of(time, 60);
  auto hours = time.substr(dash + 1);  // hours first, after the days
  for (auto colons = std::count(hours.begin(), hours.end(), ':'); colons < 2; ++colons) hours += ":0";
  const auto days = whole_number(time.substr(0, dash));
  const auto seconds = seconds_of(hours, 1);
  return days && seconds ? std::optional(*days * 86400L + *seconds) : std::nullopt;
}

void require_bash(Attempt& attempt) {
  const auto read = attempt.start({"bash", "-n", attempt.path()}, {});
  expect(read.is_well(), "bash cannot read this script:\n" + read.printed);
}

void make_stand_in(const std::string& folder, const std::string& name, const std::string& then) {
  fs::create_directories(folder);
  const auto path = fs::path(folder) / name;
  std::ofstream(path) << "#!/bin/bash\necho \"${0##*/} $*\" >>\"${0%/*}/calls\"\n" << then;
  fs::permissions(path, fs::perms::owner_all);
}

Words noted_calls(const std::string& folder) {
  Words calls;
  std::ifstream file(fs::path(folder) / "calls");
  for (std::string line; std::getline(file, line);) calls.push_back(line);
  return calls;
}

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

// Of Open MPI's and MPICH's.
constexpr Option kOfMpirun[] = {
    {"--npernode", &Launch::ranks_per_node},
    {"-npernode", &Launch::ranks_per_node},
    {"-ppn", &Launch::ranks_per_node},
    {"-N", &Launch::ranks_per_node},
    {"--np", &Launch::ranks},
    {"-np", &Launch::ranks},
    {"-n", &Launch::ranks},
};

// "--nodes" or "--nodes=2"; "-n", "-n4" or "-n=4"
bool is_named(const std::string& word, const std::string& name) {
  if (!word.starts_with(name)) return false;
  const auto rest = word.substr(name.size());
  return rest.empty() || rest.front() == '=' || (name.size() == 2 && std::isdigit(rest.front()) != 0);
}

template <size_t N>
void read_option(const Option (&options)[N], const std::string& word, const std::string& next,
                 Launch& launch) {
  const auto* option =
      std::ranges::find_if(options, [&](const auto& row) { return is_named(word, row.name); });
  if (option == std::end(options)) return;
  const auto rest = word.substr(std::string(option->name).size());
  launch.*(option->value) = rest.empty() ? next : rest.front() == '=' ? rest.substr(1) : rest;
}

}  // namespace

Launch launch_of(const std::string& call) {
  Launch launch;
  std::istringstream stream(call);
  const Words words{std::istream_iterator<std::string>(stream), {}};
  const auto program = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word == "lockstep" || word.ends_with("/lockstep");
  });
  launch.program.assign(program, words.end());
  for (auto word = words.begin(); word != program; ++word) {
    const std::string name = fs::path(*word).filename(), next = word + 1 == words.end() ? "" : *(word + 1);
    const bool is_launcher = name == "srun" || name == "mpirun" || name == "mpiexec";
    if (word != words.begin() && is_launcher) launch.inner = *word;
    words.front() == "srun" ? read_option(kOfSrun, *word, next, launch)
                            : read_option(kOfMpirun, *word, next, launch);
  }
  return launch;
}

void require_all_ranks(const Launch& launch, int ranks, int nodes) {
  constexpr const char* kThink =
      "use one launcher: without options it starts as many ranks as the job requested";
  expect(launch.inner.empty(),
         format("each of {} ranks would start {}, which starts ranks of its own", ranks, launch.inner),
         kThink);
  const auto require = [&](const std::optional<std::string>& asked, int wanted, const char* what) {
    expect(!asked || whole_number(asked->substr(0, asked->find('-'))) == wanted,
           format("the launcher gets {} for the {}, but the job has {}", asked.value_or(""), what, wanted),
           kThink);
  };
  require(launch.ranks, ranks, "number of ranks");
  require(launch.nodes, nodes, "number of nodes");
  require(launch.ranks_per_node, ranks / nodes, "ranks of each node");
}

YAML::Node settings_of(Attempt& attempt) {
  const auto run = attempt.lockstep({"config", attempt.path(), "--log", "error"},
                                    {.world = 1, .label = "reading", .may_fail = true, .alone = true});
  const auto& ending = run.ranks.front().ending();
  expect(ending.is_well(), "the config cannot be read:\n" + ending.printed);
  return YAML::Load(ending.printed);
}

}  // namespace lockstep::workshop
