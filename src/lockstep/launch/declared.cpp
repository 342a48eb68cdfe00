#include "lockstep/launch/declared.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/hostlist.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

constexpr const char* kTasksPerNode = "SLURM_STEP_TASKS_PER_NODE";

[[noreturn]] void impossible(const std::string& what, const Launcher& launcher) {
  throw InputError(what, format("environment, launcher {}", launcher.name),
                   format("{}; or say --launcher none to run alone", launcher.remedy));
}

void refuse_half_a_pair(const Launcher& launcher, const Environment& environment) {
  const bool rank = is_set(environment, launcher.rank), world = is_set(environment, launcher.world);
  if (rank && (world || launcher.world_from_mpi)) return;
  const char* overriding = launcher.beyond_choice ? "" : "; --launcher overrides this";
  const char* there = rank ? launcher.rank : launcher.world;
  const char* missing = rank ? launcher.world : launcher.rank;
  throw InputError(format("{} is set but {} is not: half of what {} sets", quote(environment, there), missing,
                          launcher.name),
                   format("environment variable {}", there),
                   format("unset {}, or {}{}", there, launcher.remedy, overriding))
      .of(Code::launcher);
}

std::optional<int> read(Declared& declared, const Environment& environment, const char* field,
                        const char* variable, bool counts) {
  const auto value = counts ? count_of(environment, variable) : number_of(environment, variable);
  if (value) declared.because[field] = quote(environment, variable);
  return value;
}

struct Value {
  const char* variable;
  const char* field;
  std::optional<int> value;
  std::string name() const { return variable ? variable : field; }
};

void refuse_outside(const Value& inner, const Value& outer, const Launcher& launcher) {
  if (inner.value && outer.value && *inner.value >= *outer.value) {
    impossible(format("{}={} lies outside {}={}", inner.name(), *inner.value, outer.name(), *outer.value),
               launcher);
  }
}

void refuse_more(const Value& part, const Value& whole, const Launcher& launcher) {
  if (part.value && whole.value && *part.value > *whole.value) {
    impossible(format("{}={} is more than {}={}", part.name(), *part.value, whole.name(), *whole.value),
               launcher);
  }
}

void check_ranges(const Declared& declared, const Launcher& launcher) {
  const Value rank{launcher.rank, "rank", declared.rank}, world{launcher.world, "world", declared.world};
  const Value local_rank{launcher.local_rank, "local rank", declared.local_rank};
  const Value local_world{launcher.local_world, "local world", declared.local_world};
  const Value node_rank{launcher.node_rank, "node rank", declared.node_rank};
  const Value nodes{launcher.nodes, "nodes", declared.nodes};
  refuse_outside(rank, world, launcher);
  refuse_outside(local_rank, world, launcher);
  refuse_outside(local_rank, local_world, launcher);
  refuse_outside(node_rank, nodes, launcher);
  refuse_more(local_world, world, launcher);
  // a rank file counts the job's hosts, not the step's
  if (launcher.node_rank) refuse_outside(node_rank, world, launcher);
  if (launcher.nodes) refuse_more(nodes, world, launcher);
}

// SLURM_STEP_TASKS_PER_NODE has one entry a node; SLURM_NODEID says which one is ours.
void read_slurm_tasks(Declared& declared, const Launcher& launcher, const Environment& environment) {
  const std::string text = text_of(environment, kTasksPerNode);
  if (text.empty()) return;
  const auto tasks = parse_task_counts(text);
  const long total = std::accumulate(tasks.begin(), tasks.end(), 0L);
  if (declared.nodes && tasks.size() != static_cast<size_t>(*declared.nodes)) {
    impossible(format("{} speaks of {} nodes, but {}={}", quote(environment, kTasksPerNode), tasks.size(),
                      launcher.nodes, *declared.nodes),
               launcher);
  }
  if (total != *declared.world) {
    impossible(format("{} makes {} tasks, but {}={}", quote(environment, kTasksPerNode), total,
                      launcher.world, *declared.world),
               launcher);
  }
  declared.nodes = static_cast<int>(tasks.size());
  refuse_outside({launcher.node_rank, "node rank", declared.node_rank},
                 {kTasksPerNode, "nodes", declared.nodes}, launcher);
  if (!declared.node_rank) return;
  declared.local_world = tasks[static_cast<size_t>(*declared.node_rank)];
  declared.because["local_world"] =
      format("entry {} of {}", *declared.node_rank, quote(environment, kTasksPerNode));
}

void derive(Declared& declared, std::optional<int> Declared::*field, const char* name, int value,
            const std::string& reason) {
  if (declared.*field) return;
  declared.*field = value;
  declared.because[name] = reason;
  declared.guessed.emplace_back(name);
}

void complete_one(Declared& declared) {
  derive(declared, &Declared::local_rank, "local_rank", 0, "the only rank");
  derive(declared, &Declared::local_world, "local_world", 1, "the only rank");
  derive(declared, &Declared::node_rank, "node_rank", 0, "the only rank");
  derive(declared, &Declared::nodes, "nodes", 1, "the only rank");
}

// LOCAL_RANK alone, as many scripts set it: on the first node it equals the rank, elsewhere the difference
// is the number of ranks on the nodes before.
int likely_local_world(int rank, int local_rank, int world) {
  const int before = rank - local_rank;
  if (before <= 0) return world;
  return before > local_rank ? std::min(before, world) : local_rank + 1;
}

void complete_local(Declared& declared, const Launcher& launcher, std::vector<std::string>& warnings) {
  const int world = *declared.world, rank = *declared.rank;
  if (!declared.local_world && declared.nodes && world % *declared.nodes == 0) {
    derive(declared, &Declared::local_world, "local_world", world / *declared.nodes, "world / nodes");
  }
  if (!declared.local_rank && !declared.local_world) {
    warnings.push_back(
        format("{} set no local rank: all {} ranks are taken to be on this host", launcher.name, world));
    derive(declared, &Declared::local_rank, "local_rank", rank, "guess: all ranks on one host");
    derive(declared, &Declared::local_world, "local_world", world, "guess: all ranks on one host");
  }
  if (!declared.local_rank) {
    warnings.push_back(
        format("{} set no local rank: ranks are taken to fill one host after another", launcher.name));
    derive(declared, &Declared::local_rank, "local_rank", rank % *declared.local_world,
           "guess: rank % local world");
  }
  if (!declared.local_world) {
    const int guess = likely_local_world(rank, *declared.local_rank, world);
    warnings.push_back(format("{} set no local world: taken to be {}", launcher.name, guess));
    derive(declared, &Declared::local_world, "local_world", guess, "guess: from rank, local rank and world");
  }
}

void complete_nodes(Declared& declared) {
  const int world = *declared.world, local_world = *declared.local_world;
  const int nodes = (world - 1) / local_world + 1;  // nodes may be unequal, but there are as many as we know
  derive(declared, &Declared::nodes, "nodes", std::max(nodes, declared.node_rank.value_or(0) + 1),
         "world / local world");
  const int node_rank = std::min(*declared.rank / local_world, *declared.nodes - 1);
  derive(declared, &Declared::node_rank, "node_rank", node_rank, "rank / local world");
}

}  // namespace

// Nothing else sets these: somebody exported them.
void refuse_uncarried(const Launcher& launcher, const Environment& environment) {
  if (!launcher.beyond_choice || is_set(environment, "LOCKSTEP_BLOCK")) return;
  throw InputError(format("{} and {} are set, and no lockstep carries this process",
                          quote(environment, launcher.rank), quote(environment, launcher.world)),
                   "the environment", format("unset {} {}", launcher.rank, launcher.world))
      .of(Code::launcher);
}

Declared read_declared(const Launcher& launcher, const Environment& environment) {
  refuse_half_a_pair(launcher, environment);
  refuse_uncarried(launcher, environment);
  Declared declared;
  declared.rank = read(declared, environment, "rank", launcher.rank, false);
  declared.world = read(declared, environment, "world", launcher.world, true);
  declared.local_rank = read(declared, environment, "local_rank", launcher.local_rank, false);
  declared.local_world = read(declared, environment, "local_world", launcher.local_world, true);
  declared.node_rank = read(declared, environment, "node_rank", launcher.node_rank, false);
  declared.nodes = read(declared, environment, "nodes", launcher.nodes, true);
  if (launcher.name == std::string("slurm")) read_slurm_tasks(declared, launcher, environment);
  check_ranges(declared, launcher);
  return declared;
}

void complete(Declared& declared, const Launcher& launcher, std::vector<std::string>& warnings) {
  if (*declared.world == 1) complete_one(declared);
  complete_local(declared, launcher, warnings);
  complete_nodes(declared);
  check_ranges(declared, launcher);
}

bool was_told(const Job& job, const char* field) {
  return std::find(job.guessed.begin(), job.guessed.end(), field) == job.guessed.end();
}

bool surely_one_node(const Job& job) {
  return job.nodes == 1 && (was_told(job, "nodes") || was_told(job, "local_world"));
}

void read_rank_file(Declared& declared, const Surroundings& surroundings) {
  if (!surroundings.rank_file) return;
  auto hosts = unique_hosts(parse_node_file(*surroundings.rank_file));
  if (hosts.size() < 2) return;
  hosts.erase(hosts.begin());  // the launch node
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!same_host(hosts[i], surroundings.host)) continue;
    declared.node_rank = static_cast<int>(i);
    declared.nodes = static_cast<int>(hosts.size());
    declared.because["node_rank"] = declared.because["nodes"] = "place of this host in LSB_DJOB_RANKFILE";
  }
}

}  // namespace lockstep::launch
