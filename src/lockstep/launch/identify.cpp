#include "lockstep/launch/identify.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/scheduler.h"
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

namespace {

using enum mpi::Family;

constexpr const char* kMpirun = "start the ranks with the mpirun of one MPI, whose library is loaded too";

constexpr mpi::Family kOfOpenMpi[] = {open_mpi, standard};
constexpr mpi::Family kOverPmi[] = {mpich, standard, open_mpi};
constexpr mpi::Family kOverPmix[] = {open_mpi, standard, mpich};

// Open MPI's _NODE_RANK is not a node's rank but a rank on a node, so it is not here.
constexpr std::array<Launcher, 10> kLaunchers = {{
    {.name = "as_world",
     .rank = "LOCKSTEP_RANK",
     .world = "LOCKSTEP_WORLD_SIZE",
     .local_rank = "LOCKSTEP_LOCAL_RANK",
     .local_world = "LOCKSTEP_LOCAL_WORLD_SIZE",
     .node_rank = "LOCKSTEP_NODE_RANK",
     .nodes = "LOCKSTEP_NODES",
     .mpi = UsesMpi::never,
     .beyond_choice = true,
     .remedy = "unset LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE: lockstep train sets them for the ranks that it "
               "carries"},
    {.name = "torchrun",
     .rank = "RANK",
     .world = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .node_rank = "GROUP_RANK",
     .nodes = "GROUP_WORLD_SIZE",
     .mpi = UsesMpi::never,
     .remedy = "start with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and "
               "MASTER_PORT"},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .mpi = UsesMpi::always,
     .answers = kOfOpenMpi,
     .remedy = kMpirun},
    {.name = "pals",
     .rank = "PALS_RANKID",
     .world = "PALS_SIZE",
     .local_rank = "PALS_LOCAL_RANKID",
     .local_world = "PALS_LOCAL_SIZE",
     .node_rank = "PALS_NODEID",
     .mpi = UsesMpi::always,
     .answers = kOverPmi,
     .world_from_mpi = true,
     .remedy = "start the ranks with mpiexec -n N --ppn P"},
    {.name = "pmi",
     .rank = "PMI_RANK",
     .world = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_world = "MPI_LOCALNRANKS",
     .mpi = UsesMpi::always,
     .answers = kOverPmi,
     .remedy = kMpirun},
    {.name = "flux",
     .rank = "FLUX_TASK_RANK",
     .world = "FLUX_JOB_SIZE",
     .local_rank = "FLUX_TASK_LOCAL_ID",
     .nodes = "FLUX_JOB_NNODES",
     .mpi = UsesMpi::when_wired,
     .answers = kOverPmi,
     .remedy = "start the ranks with flux run -n N"},
    {.name = "jsrun",
     .rank = "JSM_NAMESPACE_RANK",
     .world = "JSM_NAMESPACE_SIZE",
     .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
     .mpi = UsesMpi::when_wired,
     .answers = kOfOpenMpi,
     .remedy = "start the ranks with jsrun"},
    {.name = "pmix",
     .rank = "PMIX_RANK",
     .mpi = UsesMpi::always,
     .answers = kOverPmix,
     .world_from_mpi = true,
     .remedy = "start the ranks with mpirun or srun --mpi=pmix"},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .world = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .node_rank = "SLURM_NODEID",
     .nodes = "SLURM_STEP_NUM_NODES",
     .mpi = UsesMpi::when_wired,
     .answers = kOverPmix,
     .announced = "SLURM_STEP_NUM_TASKS",
     .remedy = "start the ranks with srun"},
    {.name = "torque",
     .rank = "PBS_VNODENUM",
     .world = "PBS_NP",
     .local_world = "PBS_NUM_PPN",
     .node_rank = "PBS_NODENUM",
     .nodes = "PBS_NUM_NODES",
     .mpi = UsesMpi::never,
     .only_by_choice = true,
     .remedy = "start the ranks with pbsdsh -u"},
}};

bool speaks(const Launcher& row, const Environment& environment) {
  if (row.only_by_choice) return false;
  if (row.announced) return is_set(environment, row.announced) && !in_interactive_slurm_step(environment);
  return is_set(environment, row.rank) || is_set(environment, row.world);
}

const Launcher& chosen(const Environment& environment, const std::string& choice) {
  const auto row = std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Launcher& launcher) {
    return choice == launcher.name && !launcher.beyond_choice;
  });
  if (row == kLaunchers.end()) {
    throw InputError(format("unknown launcher '{}'", choice), "launch.launcher or --launcher",
                     format("choose one of {}", base::join(launcher_choices(), ", ")));
  }
  if (!is_set(environment, row->rank)) {
    throw InputError(format("the launcher '{}' was asked for, but {} is not set", choice, row->rank),
                     "launch.launcher or --launcher", format("{}; or let it be 'auto'", row->remedy));
  }
  return *row;
}

// An srun step or a Flux job without a PMI has nothing that answers MPI_Init. A choice of 'slurm' over a
// bare PMI means: do without MPI, as Open MPI aborts where it was not built for Slurm's PMI.
bool is_wired(const Environment& environment, const std::string& choice) {
  if (is_set(environment, "PMIX_RANK")) return true;
  return choice != "slurm" && (is_set(environment, "PMI_RANK") || is_set(environment, "PMI_FD"));
}

}  // namespace

std::span<const Launcher> launchers() {
  return kLaunchers;
}

bool in_interactive_slurm_step(const Environment& environment) {
  const auto found = environment.find("SLURM_STEP_ID");
  return found != environment.end() && found->second == "4294967290";  // SLURM_INTERACTIVE_STEP in slurm.h
}

const Launcher* find_launcher(const Environment& environment, const std::string& choice) {
  for (const auto& row : kLaunchers) {
    if (row.beyond_choice && speaks(row, environment)) return &row;
  }
  if (choice == "none" || choice == "mpi") return nullptr;
  if (choice != "auto") return &chosen(environment, choice);
  for (const auto& row : kLaunchers) {
    if (speaks(row, environment)) return &row;
  }
  return nullptr;
}

std::vector<std::string> launcher_choices() {
  std::vector<std::string> names = {"auto"};
  for (const auto& row : launchers()) {
    if (!row.beyond_choice) names.emplace_back(row.name);
  }
  names.insert(names.end(), {"mpi", "none"});
  return names;
}

std::string detect_launcher(const Environment& environment, const std::string& choice) {
  if (const auto* row = find_launcher(environment, choice)) return row->name;
  return choice == "mpi" ? "mpi" : "none";
}

bool wants_mpi(const Environment& environment, const std::string& choice) {
  const auto* row = find_launcher(environment, choice);
  if (!row) return choice == "mpi";
  return row->mpi == UsesMpi::always || (row->mpi == UsesMpi::when_wired && is_wired(environment, choice));
}

bool needs_mpi(const Environment& environment, const std::string& choice) {
  const auto* row = find_launcher(environment, choice);
  return !row || row->mpi == UsesMpi::always;
}

// What identify() asks of this machine: its host name, and the host file of the one launcher that leaves one.

namespace {

constexpr size_t kLargestFile = 16 << 20;

// nullopt where the variable is not set or its file cannot be read: a task started by pbsdsh has none
std::optional<std::string> read_named_file(const Environment& environment, const char* variable) {
  if (!is_set(environment, variable)) return std::nullopt;
  try {
    return base::read_small_file(text_of(environment, variable), kLargestFile, variable);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

Surroundings current_surroundings(const Environment& environment) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  // the files matter to one launcher each; ten thousand ranks need not all open them
  const std::string launcher = detect_launcher(environment);
  Surroundings result{host.data(), std::nullopt, std::nullopt};
  if (launcher == "none") result.node_file = read_named_file(environment, "PBS_NODEFILE");
  if (launcher == "jsrun") result.rank_file = read_named_file(environment, "LSB_DJOB_RANKFILE");
  return result;
}

namespace {

// Each place in a job: the launcher's word, MPI's fact, the field.
struct Field {
  const char* name;
  std::optional<int> Declared::*word;
  int MpiFacts::*fact;
  int Job::*value;
  const char* source;
};

constexpr Field kFields[] = {
    {"rank", &Declared::rank, &MpiFacts::rank, &Job::rank, "MPI_Comm_rank"},
    {"world", &Declared::world, &MpiFacts::world, &Job::world, "MPI_Comm_size"},
    {"local_rank", &Declared::local_rank, &MpiFacts::local_rank, &Job::local_rank,
     "MPI_Comm_split_type(SHARED)"},
    {"local_world", &Declared::local_world, &MpiFacts::local_world, &Job::local_world,
     "MPI_Comm_split_type(SHARED)"},
    {"node_rank", &Declared::node_rank, &MpiFacts::node_rank, &Job::node_rank,
     "order of the nodes' first ranks in MPI"},
    {"nodes", &Declared::nodes, &MpiFacts::nodes, &Job::nodes, "count of nodes in MPI"},
};

std::string why(const Declared& declared, const std::string& field) {
  const auto found = declared.because.find(field);
  return found == declared.because.end() ? field : found->second;
}

[[noreturn]] void refuse_against_mpi(const Declared& declared, const Field& field, const Launcher& launcher,
                                     const MpiFacts& mpi) {
  const bool lone = mpi.world == 1 && declared.world.value_or(1) > 1;
  const std::string library = mpi.library.empty() ? "the MPI library" : mpi.library;
  throw InputError(
      format("{} says {} is {} ({}), but MPI says {}{}", launcher.name, field.name, *(declared.*field.word),
             why(declared, field.name), mpi.*field.fact,
             lone ? format(": {} processes would each be rank 0 of 1", *declared.world) : ""),
      format("MPI_Init against the environment; the library is {}", library),
      lone ? format("start the ranks with the mpirun that belongs to {}", library)
           : format("unset what an outer allocation left behind ({}), or choose with --launcher ('mpi' "
                    "believes MPI alone)",
                    launcher.world ? format("{}, {}", launcher.rank, launcher.world) : launcher.rank))
      .of(Code::launcher);
}

void cross_check(const Declared& declared, const Launcher& launcher, const MpiFacts& mpi, Job& job) {
  for (const auto& field : kFields) {
    const auto value = declared.*field.word;
    if (!value || *value == mpi.*field.fact) continue;
    // nodes may be numbered in another order than the ranks, and two daemons of a test cluster share a host
    const bool node = field.fact == &MpiFacts::node_rank || field.fact == &MpiFacts::nodes;
    if (!node) refuse_against_mpi(declared, field, launcher, mpi);
    job.warnings.push_back(format("{} says {} is {} ({}); MPI says {}, which holds", launcher.name,
                                  field.name, *value, why(declared, field.name), mpi.*field.fact));
  }
}

void take_facts(Job& job, const MpiFacts& mpi) {
  for (const auto& field : kFields) {
    job.*field.value = mpi.*field.fact;
    job.because[field.name] = field.source;
  }
}

void take_declared(Job& job, const Declared& declared) {
  for (const auto& field : kFields) {
    job.*field.value = (declared.*field.word).value();
    job.because[field.name] = why(declared, field.name);
  }
  job.guessed = declared.guessed;
}

void run_alone(Job& job, const std::string& reason) {
  for (const auto& field : kFields) job.because[field.name] = reason;
}

void take_scheduler(Job& job, const Environment& environment) {
  const auto* scheduler = find_scheduler(environment);
  job.because["scheduler"] = scheduler ? scheduler->job_id : "no batch system's job id is set";
  if (!scheduler) return;
  job.scheduler = scheduler->name;
  job.job_id = text_of(environment, scheduler->job_id);
  job.because["job_id"] = scheduler->job_id;
}

void take_host(Job& job, const Environment& environment, const Surroundings& surroundings) {
  job.host = surroundings.host;
  job.because["host"] = "gethostname";
  for (const char* variable : {"SLURMD_NODENAME", "HOSTNAME"}) {
    if (!job.host.empty() || !is_set(environment, variable)) continue;
    job.host = text_of(environment, variable);
    job.because["host"] = variable;
  }
}

void take_launcher(Job& job, const Environment& environment, const Launcher* row, const std::string& choice) {
  job.launcher = row ? row->name : detect_launcher(environment, choice);
  if (choice != "auto" && !(row && row->beyond_choice)) {
    job.because["launcher"] = "--launcher " + choice;
  } else {
    job.because["launcher"] = row ? std::string(row->announced ? row->announced : row->rank) + " is set"
                                  : "no launcher's variables are set";
  }
}

Declared declared_by(const Launcher& row, const Environment& environment, const Surroundings& surroundings) {
  Declared declared = read_declared(row, environment);
  if (row.name == std::string("jsrun")) read_rank_file(declared, surroundings);
  return declared;
}

void place(Job& job, const Launcher* row, const Environment& environment, const std::optional<MpiFacts>& mpi,
           const Surroundings& surroundings, const std::string& choice) {
  if (!row) {
    if (mpi && choice != "none") {
      job.launcher = "mpi";
      return take_facts(job, *mpi);
    }
    return run_alone(job, "alone: " + job.because["launcher"]);
  }
  Declared declared = declared_by(*row, environment, surroundings);
  if (mpi) {
    cross_check(declared, *row, *mpi, job);
    return take_facts(job, *mpi);
  }
  if (!declared.world) {
    throw InputError(
        format("{} is set, but no variable says how many ranks there are", why(declared, "rank")),
        format("environment, launcher {}", row->name), "only MPI knows: do not run without it here")
        .of(Code::launcher);
  }
  complete(declared, *row, job.guesses);
  job.warnings.insert(job.warnings.end(), job.guesses.begin(), job.guesses.end());
  take_declared(job, declared);
}

void judge_phantom(Job& job, const Phantom& phantom, Phantoms phantoms) {
  if (phantom.what.empty()) return;
  if (phantoms == Phantoms::refuse) {
    const auto batch = job.job_id.empty() ? "" : format("{} job {} on ", job.scheduler, job.job_id);
    throw InputError(phantom.what, batch + "host " + job.host, phantom.hint).of(Code::launcher);
  }
  job.phantom = phantom.what;
  job.phantom_hint = phantom.hint;
}

}  // namespace

void check_environment(const Environment& environment, const std::string& choice) {
  if (const auto* row = find_launcher(environment, choice)) read_declared(*row, environment);
}

Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi, const std::string& choice,
             const Surroundings& surroundings, Phantoms phantoms) {
  Job job;
  const Launcher* row = find_launcher(environment, choice);
  take_launcher(job, environment, row, choice);
  take_scheduler(job, environment);
  take_host(job, environment, surroundings);
  const auto judge = [&] {
    judge_phantom(job, find_phantom(environment, row, mpi.has_value(), surroundings, job.warnings), phantoms);
  };
  // where MPI says "0 of 1", the phantom is the cause and a rank that differs only its symptom
  if (choice != "none" && mpi && mpi->world == 1) judge();
  place(job, row, environment, mpi, surroundings, choice);
  if (choice != "none" && !mpi && job.world == 1) judge();
  if (choice == "auto" && row && !mpi) judge_phantom(job, find_leftover(environment, *row), phantoms);
  return job;
}

}  // namespace lockstep::launch
