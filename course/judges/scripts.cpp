// Job scripts: the lines that a scheduler reads, and what the commands below them start.
#include "course/judges/shared.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> words_before_comment(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word && word[0] != '#';) words.push_back(word);
  return words;
}

bool is_command(const std::string& line) {
  const auto first = line.find_first_not_of(" \t\r");
  return first != std::string::npos && line[first] != '#';
}

// "# PBS -l", "##SBATCH --nodes": meant as a directive, and a comment
bool is_nearly(const std::string& line, const std::string& sign) {
  const auto name = line.find_first_not_of("# \t");
  const auto meant = sign.substr(1) + " -";
  return line.starts_with("#") && name != std::string::npos && line.compare(name, meant.size(), meant) == 0;
}

// The words behind each `sign`, in order.
std::vector<std::vector<std::string>> directives(const std::string& script, const std::string& sign) {
  std::vector<std::vector<std::string>> found;
  bool has_begun = false;
  int number = 0;
  for (const auto& line : base::split(script, '\n')) {
    ++number;
    has_begun = has_begun || is_command(line);
    const bool is_directive = line.starts_with(sign);
    if (!is_directive && is_nearly(line, sign))
      throw NotYet(
          format("line {} is a comment: a directive begins with {}, and nothing before it", number, sign));
    if (is_directive && has_begun)
      throw NotYet(format("line {} is not read: this {} stands below the first command", number, sign),
                   "the scheduler looks no further than that");
    if (is_directive) found.push_back(words_before_comment(line.substr(sign.size())));
  }
  return found;
}

// sbatch has two names for it
std::string whole_name(const std::string& name) {
  return name == "tasks-per-node" ? "ntasks-per-node" : name;
}

// "--nodes=2", "nodes=2" -> nodes, 2
void put(DirectiveOptions& asked, const std::string& text) {
  const auto sign = text.find('=');
  asked[whole_name(text.substr(0, sign))] = sign == std::string::npos ? "" : text.substr(sign + 1);
}

// -l select=...,walltime=... in one word or two
void put_pbs(DirectiveOptions& asked, const std::vector<std::string>& words) {
  for (size_t at = 0; at < words.size(); ++at) {
    if (!words[at].starts_with("-l")) continue;
    const bool apart = words[at] == "-l" && at + 1 < words.size();
    for (const auto& resource : base::split(apart ? words[at + 1] : words[at].substr(2), ','))
      put(asked, resource);
  }
}

std::string long_name(char letter) {
  static const std::map<char, std::string> names = {
      {'N', "nodes"}, {'n', "ntasks"}, {'c', "cpus-per-task"}, {'t', "time"}, {'a', "array"}};
  const auto found = names.find(letter);
  return found == names.end() ? std::string(1, letter) : found->second;
}

// --nodes=2, --nodes 2, -N 2, -N2
void put_slurm(DirectiveOptions& asked, const std::vector<std::string>& words) {
  for (size_t at = 0; at < words.size(); ++at) {
    const auto& word = words[at];
    if (!word.starts_with("-")) continue;
    const bool next = at + 1 < words.size() && !words[at + 1].starts_with("-");
    if (word.starts_with("--")) {
      const bool whole = word.find('=') != std::string::npos;
      put(asked, word.substr(2) + (!whole && next ? "=" + words[at + 1] : ""));
    } else if (word.size() > 1) {
      asked[long_name(word[1])] = word.size() > 2 ? word.substr(2) : next ? words[at + 1] : "";
    }
  }
}

// numbers between colons; nothing where one is none
std::vector<long> numbers_of(const std::string& text) {
  std::vector<long> numbers;
  for (const auto& part : base::split(text, ':')) {
    const auto number = whole_number(part);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

// 1:30 and a last unit of seconds: 90
std::optional<long> to_seconds(const std::vector<long>& numbers, long last_unit) {
  if (numbers.empty() || numbers.size() > 3) return std::nullopt;
  long total = 0;
  for (const long number : numbers) total = total * 60 + number;
  return total * last_unit;
}

int count_in(const std::string& resource, const std::string& text) {
  const auto count = whole_number(text);
  if (!count || *count < 1) throw NotYet(format("'{}' is no number, in select's {}", text, resource));
  return *count;
}

Chunks chunks_from(const std::string& kind) {
  Chunks chunks;
  const auto parts = base::split(kind, ':');
  for (size_t at = 0; at < parts.size(); ++at) {
    const auto sign = parts[at].find('=');
    if (sign == std::string::npos && at == 0) chunks.count = count_in("count", parts[at]);
    if (parts[at].starts_with("ncpus=")) chunks.cores = count_in("ncpus", parts[at].substr(sign + 1));
    if (parts[at].starts_with("mpiprocs=")) chunks.ranks = count_in("mpiprocs", parts[at].substr(sign + 1));
  }
  return chunks;
}

}  // namespace

DirectiveOptions asked_of_pbs(const std::string& script) {
  DirectiveOptions asked;
  for (const auto& words : directives(script, "#PBS")) put_pbs(asked, words);
  return asked;
}

DirectiveOptions asked_of_slurm(const std::string& script) {
  DirectiveOptions asked;
  for (const auto& words : directives(script, "#SBATCH")) put_slurm(asked, words);
  return asked;
}

std::optional<std::string> value_of(const DirectiveOptions& asked, const std::string& name) {
  const auto found = asked.find(name);
  return found == asked.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Chunks> chunks_of(const std::string& select) {
  std::vector<Chunks> kinds;
  for (const auto& kind : base::split(select, '+')) kinds.push_back(chunks_from(kind));
  return kinds;
}

std::optional<long> pbs_seconds(const std::string& time) {
  return to_seconds(numbers_of(time), 1);
}

std::optional<long> slurm_seconds(const std::string& time) {
  const auto dash = time.find('-');
  if (dash == std::string::npos) {
    const auto numbers = numbers_of(time);
    return to_seconds(numbers, numbers.size() == 1 ? 60 : 1);
  }
  const auto days = whole_number(time.substr(0, dash));
  auto numbers = numbers_of(time.substr(dash + 1));  // hours first
  if (!days || numbers.empty() || numbers.size() > 3) return std::nullopt;
  numbers.resize(3);
  return *days * 86400L + *to_seconds(numbers, 1);
}

std::optional<int> whole_number(const std::string& text) {
  int number = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
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

YAML::Node settings_of(Attempt& attempt) {
  const auto run = attempt.lockstep({"config", attempt.path(), "--log", "error"},
                                    {.world = 1, .label = "reading", .may_fail = true, .alone = true});
  const auto& ending = run.ranks.front().ending();
  expect(ending.is_well(), "the config cannot be read:\n" + ending.printed);
  return YAML::Load(ending.printed);
}

}  // namespace lockstep::workshop
