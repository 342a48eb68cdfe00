#include "lockstep/launch/identify.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

constexpr const char* kTasksPerNode = "SLURM_STEP_TASKS_PER_NODE";

// One number of a rank's place: its variable, MPI's value and the result.
struct Field {
  const char* name;
  const char* Launcher::*variable;
  int MpiFacts::*fact;
  int Job::*value;
  bool is_count;       // at least 1
  const char* source;  // of MPI's value
};

constexpr const char* kSplit = "MPI_Comm_split_type(SHARED)";
constexpr const char* kNodeOrder = "order of the nodes' first ranks in MPI";
constexpr Field kFields[] = {
    {"rank", &Launcher::rank, &MpiFacts::rank, &Job::rank, false, "MPI_Comm_rank"},
    {"world", &Launcher::world, &MpiFacts::world, &Job::world, true, "MPI_Comm_size"},
    {"local_rank", &Launcher::local_rank, &MpiFacts::local_rank, &Job::local_rank, false, kSplit},
    {"local_world", &Launcher::local_world, &MpiFacts::local_world, &Job::local_world, true, kSplit},
    {"node_rank", &Launcher::node_rank, &MpiFacts::node_rank, &Job::node_rank, false, kNodeOrder},
    {"nodes", &Launcher::nodes, &MpiFacts::nodes, &Job::nodes, true, "count of nodes in MPI"}};
enum FieldIndex { kRank, kWorld, kLocalRank, kLocalWorld, kNodeRank, kNodes };
constexpr auto kEach = {kRank, kWorld, kLocalRank, kLocalWorld, kNodeRank, kNodes};

// What one launcher's variables say. All values come from this launcher.
struct Declared {
  std::array<std::optional<int>, std::size(kFields)> values;
  std::map<std::string, std::string> because;

  std::optional<int>& operator[](FieldIndex field) { return values[field]; }
  const std::optional<int>& operator[](FieldIndex field) const { return values[field]; }
};

[[noreturn]] void refuse_contradiction(const std::string& what, const Launcher& launcher) {
  throw InputError(what, format("environment, launcher {}", launcher.name),
                   format("{}; or use --launcher none to run alone", launcher.remedy));
}

void refuse_half_a_pair(const Launcher& launcher, const Environment& environment) {
  const bool rank = is_set(environment, launcher.rank), world = is_set(environment, launcher.world);
  if (rank && (world || launcher.world_from_mpi)) return;
  const char* overriding = launcher.ignores_choice ? "" : "; --launcher none ignores these variables";
  const char* there = rank ? launcher.rank : launcher.world;
  const char* missing = rank ? launcher.world : launcher.rank;
  throw InputError(
      format("{} is set but {} is not: {} sets both", quote(environment, there), missing, launcher.name),
      format("environment variable {}", there),
      format("unset {}, or {}{}", there, launcher.remedy, overriding))
      .of(Code::launcher);
}

// Only `lockstep train` sets these, together with LOCKSTEP_BLOCK.
void refuse_exported_rank(const Launcher& launcher, const Environment& environment) {
  if (!launcher.ignores_choice || is_set(environment, "LOCKSTEP_BLOCK")) return;
  throw InputError(format("{} and {} are set, but lockstep did not start this process",
                          quote(environment, launcher.rank), quote(environment, launcher.world)),
                   "the environment", format("unset {} {}", launcher.rank, launcher.world))
      .of(Code::launcher);
}

// A rank lies below its count; a smaller count may equal the larger one.
void check_range(const Launcher& launcher, const Declared& declared, FieldIndex inner, FieldIndex outer) {
  const auto part = declared[inner], whole = declared[outer];
  const bool is_count = kFields[inner].is_count;
  if (!part || !whole || *part < *whole || (is_count && *part == *whole)) return;
  const auto name = [&](FieldIndex field) {
    const char* variable = launcher.*kFields[field].variable;
    return variable ? variable : kFields[field].name;
  };
  refuse_contradiction(format("{}={} {} {}={}", name(inner), *part,
                              is_count ? "is more than" : "must be less than", name(outer), *whole),
                       launcher);
}

// SLURM_STEP_TASKS_PER_NODE has one entry a node; SLURM_NODEID is the index of ours.
void read_slurm_tasks(Declared& declared, const Launcher& launcher, const Environment& environment) {
  const std::string text = text_of(environment, kTasksPerNode);
  if (text.empty()) return;
  const auto tasks = parse_task_counts(text);
  const auto nodes = static_cast<int>(tasks.size());
  if (declared[kNodes].value_or(nodes) != nodes ||
      std::accumulate(tasks.begin(), tasks.end(), int64_t{0}) != *declared[kWorld]) {
    refuse_contradiction(format("{} does not match {} and {}", quote(environment, kTasksPerNode),
                                quote(environment, launcher.world), quote(environment, launcher.nodes)),
                         launcher);
  }
  declared[kNodes] = nodes;
  if (!declared[kNodeRank] || *declared[kNodeRank] >= nodes) return;
  declared[kLocalWorld] = tasks[static_cast<size_t>(*declared[kNodeRank])];
  declared.because["local_world"] =
      format("entry {} of {}", *declared[kNodeRank], quote(environment, kTasksPerNode));
}

Declared read_declared(const Launcher& launcher, const Environment& environment) {
  refuse_half_a_pair(launcher, environment);
  refuse_exported_rank(launcher, environment);
  Declared declared;
  for (const auto i : kEach) {
    const char* variable = launcher.*kFields[i].variable;
    declared[i] = kFields[i].is_count ? count_of(environment, variable) : number_of(environment, variable);
    if (declared[i]) declared.because[kFields[i].name] = quote(environment, variable);
  }
  if (launcher.name == std::string("slurm")) read_slurm_tasks(declared, launcher, environment);
  for (const auto& inner : {kRank, kLocalRank, kLocalWorld, kNodeRank, kNodes})
    check_range(launcher, declared, inner, kWorld);
  check_range(launcher, declared, kLocalRank, kLocalWorld);
  check_range(launcher, declared, kNodeRank, kNodes);
  return declared;
}

// What no variable says is known when the ranks have met. Until then the value is one that fits the others.
std::vector<std::string> assume_rest(Declared& declared) {
  std::vector<std::string> assumed;
  const auto assume = [&](FieldIndex field, int value) {
    if (declared[field]) return;
    declared[field] = value;
    declared.because[kFields[field].name] = "assumed until the ranks join";
    assumed.emplace_back(kFields[field].name);
  };
  const int rank = *declared[kRank], world = *declared[kWorld];
  const bool is_even = declared[kNodes] && world % *declared[kNodes] == 0;
  assume(kLocalWorld,
         std::max(is_even ? world / *declared[kNodes] : world, declared[kLocalRank].value_or(0) + 1));
  const int local_world = *declared[kLocalWorld];
  assume(kLocalRank, rank % local_world);
  assume(kNodes, std::max((world - 1) / local_world, declared[kNodeRank].value_or(0)) + 1);
  assume(kNodeRank, std::min(rank / local_world, *declared[kNodes] - 1));
  return assumed;
}

std::string why(const Declared& declared, const std::string& field) {
  const auto found = declared.because.find(field);
  return found == declared.because.end() ? field : found->second;
}

[[noreturn]] void refuse_against_mpi(const Declared& declared, FieldIndex index, const Launcher& launcher,
                                     const MpiFacts& mpi) {
  const Field& field = kFields[index];
  const bool lone = mpi.world == 1 && declared[kWorld].value_or(1) > 1;
  const std::string library = mpi.library.empty() ? "the MPI library" : mpi.library;
  throw InputError(
      format("{} says {} is {} ({}), but MPI says {}{}", launcher.name, field.name, *declared[index],
             why(declared, field.name), mpi.*field.fact,
             lone ? format(": {} processes would each be rank 0 of 1", *declared[kWorld]) : ""),
      format("MPI ({})", library),
      lone ? format("start the ranks with the mpirun that belongs to {}", library)
           : format("unset {} if an outer job set them, or pass --launcher mpi to use only MPI",
                    launcher.world ? format("{} and {}", launcher.rank, launcher.world) : launcher.rank))
      .of(Code::launcher);
}

void cross_check(const Declared& declared, const Launcher& launcher, const MpiFacts& mpi, Job& job) {
  for (const auto index : kEach) {
    const Field& field = kFields[index];
    const auto value = declared[index];
    if (!value || *value == mpi.*field.fact) continue;
    // nodes may be numbered in another order than the ranks, and two daemons of a test cluster share a host
    if (index != kNodeRank && index != kNodes) refuse_against_mpi(declared, index, launcher, mpi);
    job.warnings.push_back(format("{} says {} is {} ({}); lockstep uses MPI's {}", launcher.name, field.name,
                                  *value, why(declared, field.name), mpi.*field.fact));
  }
}

// Schedulers and the variable that each sets inside a job. Torque sets PBS_JOBID too; Flux may run in any.
constexpr std::array<std::pair<const char*, const char*>, 4> kSchedulers = {
    {{"slurm", "SLURM_JOB_ID"}, {"pbs", "PBS_JOBID"}, {"lsf", "LSB_JOBID"}, {"flux", "FLUX_JOB_ID"}}};

bool is_torque(const Environment& environment) {
  return is_set(environment, "PBS_NUM_PPN") || is_set(environment, "PBS_VNODENUM") ||
         is_set(environment, "PBS_NP");
}

void set_scheduler(Job& job, const Environment& environment) {
  const auto found = std::ranges::find_if(
      kSchedulers, [&](const auto& scheduler) { return is_set(environment, scheduler.second); });
  job.because["scheduler"] = found == kSchedulers.end() ? "no scheduler's job id is set" : found->second;
  if (found == kSchedulers.end()) return;
  job.scheduler = found->first;
  if (job.scheduler == "pbs" && is_torque(environment)) job.scheduler = "torque";
  job.job_id = text_of(environment, found->second);
  job.because["job_id"] = found->second;
}

void set_launcher(Job& job, const Environment& environment, const Launcher* row, const std::string& choice) {
  job.launcher = detect_launcher(environment, choice);
  if (choice != "auto" && !(row && row->ignores_choice)) {
    job.because["launcher"] = "--launcher " + choice;
  } else {
    job.because["launcher"] = row ? std::string(row->announced ? row->announced : row->rank) + " is set"
                                  : "no launcher's variables are set";
  }
}

void place_rank(Job& job, const Launcher* row, const Environment& environment,
                const std::optional<MpiFacts>& mpi, const std::string& choice) {
  Declared declared;
  if (row) declared = read_declared(*row, environment);
  if (mpi && choice != "none") {
    if (row) cross_check(declared, *row, *mpi, job);
    if (!row) job.launcher = "mpi";
    for (const auto& field : kFields) {
      job.*field.value = (*mpi).*field.fact;
      job.because[field.name] = field.source;
    }
    return;
  }
  if (!row) {
    for (const auto& field : kFields) job.because[field.name] = "one process: " + job.because["launcher"];
    return;
  }
  if (!declared[kWorld])
    throw InputError(
        format("{} is set, but no variable says how many ranks there are", why(declared, "rank")),
        format("environment, launcher {}", row->name), "start the ranks with mpirun or srun --mpi=pmix")
        .of(Code::launcher);
  job.guessed = assume_rest(declared);
  for (const auto i : kEach) {
    job.*kFields[i].value = *declared[i];
    job.because[kFields[i].name] = why(declared, kFields[i].name);
  }
}

// A phantom rank: one of several processes that each believe they are rank 0 of 1.
struct Phantom {
  std::string what;  // empty = none
  std::string hint;
};

constexpr const char* kAlone = "; to run alone on purpose, use --launcher none";

Phantom started_alone(const std::string& what, const std::string& how) {
  return {format("this process was started alone (rank 0 of 1), but {}", what), how + kAlone};
}

Phantom slurm_phantom(const Environment& environment) {
  const int nodes = count_of(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  const int tasks = std::max(count_of(environment, "SLURM_NTASKS").value_or(1), nodes);
  if (tasks == 1) return {};
  const char* variable = is_set(environment, "SLURM_NTASKS") ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
  return started_alone(format("the Slurm job has {} tasks ({})", tasks, quote(environment, variable)),
                       "start the ranks with srun or mpirun");
}

Phantom pbs_phantom(const Environment& environment, const HostFacts& surroundings,
                    std::vector<std::string>& warnings) {
  const std::string how = "start the ranks with mpirun or mpiexec";
  if (number_of(environment, "PBS_NODENUM").value_or(0) > 0) {
    return started_alone(
        format("it does not run on the first host of the PBS job ({})", quote(environment, "PBS_NODENUM")),
        how);
  }
  // the job's script is task 1; pbsdsh and pbs_tmrsh start the others
  if (number_of(environment, "PBS_TASKNUM").value_or(1) > 1 ||
      number_of(environment, "PBS_VNODENUM").value_or(0) > 0) {
    return started_alone(
        format("it is not the first task of the PBS job ({})", quote(environment, "PBS_TASKNUM")), how);
  }
  std::istringstream words(surroundings.node_file.value_or(""));
  const std::vector<std::string> lines{std::istream_iterator<std::string>(words), {}};
  if (lines.empty()) {
    if (!text_of(environment, "PBS_NODEFILE").empty())
      warnings.push_back(format("{} cannot be read or is empty: lockstep assumes a job of one process",
                                quote(environment, "PBS_NODEFILE")));
    return {};
  }
  const auto hosts = std::set<std::string>(lines.begin(), lines.end()).size();
  const std::string what =
      format("PBS_NODEFILE has {} lines for {} host{}", lines.size(), hosts, hosts == 1 ? "" : "s");
  // a line is an MPI rank under PBS, but a core under Torque, and on Gadi where the lines equal PBS_NCPUS
  const bool are_cores =
      is_torque(environment) || text_of(environment, "PBS_NCPUS") == std::to_string(lines.size());
  if (hosts > 1 || (lines.size() > 1 && !are_cores)) return started_alone(what, how);
  if (lines.size() > 1) warnings.push_back(what + ": lockstep treats them as cores of a single rank");
  return {};
}

// Open MPI 5 under srun without PMIx: every task is told "0 of 1", silently (ompi#13523).
Phantom step_phantom(const Environment& environment) {
  const int tasks = count_of(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks == 1 || is_set(environment, "PRTE_LAUNCHED") || in_interactive_slurm_step(environment)) return {};
  return {format("MPI says rank 0 of 1, but {}: {} processes would each train alone",
                 quote(environment, "SLURM_STEP_NUM_TASKS"), tasks),
          "start with srun --mpi=pmix (srun --mpi=list shows the supported types) or mpirun, or use "
          "--launcher slurm"};
}

// Whether this process is rank 0 of 1 where several ranks were meant to be.
Phantom find_phantom(const Environment& environment, const Launcher* launcher, bool has_mpi,
                     const HostFacts& surroundings, Job& job) {
  // a launcher that counts its ranks itself meant one
  if (launcher && launcher->world && is_set(environment, launcher->world)) return {};
  if (has_mpi) {
    if (auto phantom = step_phantom(environment); !phantom.what.empty()) return phantom;
    if (launcher) return {};
  }
  if (job.scheduler == "slurm") return slurm_phantom(environment);
  if (job.scheduler == "pbs" || job.scheduler == "torque")
    return pbs_phantom(environment, surroundings, job.warnings);
  return {};
}

// Whether a profile or an earlier job left torchrun's variables behind, below an mpirun or srun that started
// several ranks. torchrun itself sets TORCHELASTIC_RUN_ID. A wrapper that translates them agrees with it.
Phantom find_leftover(const Environment& environment, const Launcher& launcher) {
  if (launcher.name != std::string("torchrun") || is_set(environment, "TORCHELASTIC_RUN_ID")) return {};
  const auto rank = number_of(environment, launcher.rank), world = count_of(environment, launcher.world);
  Phantom leftover;
  for (const auto& row : launchers()) {
    const bool is_step = row.announced && !in_interactive_slurm_step(environment);
    if (row.rank == std::string(launcher.rank) || !row.world || !is_set(environment, row.rank)) continue;
    const auto their_world = count_of(environment, row.world).value_or(1);
    if (world == their_world && rank == number_of(environment, row.rank) && their_world > 1) return {};
    if ((row.mpi != UsesMpi::always && !is_step) || their_world == 1 || !leftover.what.empty()) continue;
    if (world != 1 && world != their_world) continue;  // a wrapper may start several ranks in each task
    leftover = {format("{} and {} contradict {} and {}", quote(environment, launcher.rank),
                       quote(environment, launcher.world), quote(environment, row.rank),
                       quote(environment, row.world)),
                format("unset RANK and WORLD_SIZE if they are left over from an earlier shell or job, or use "
                       "--launcher {} or torchrun",
                       row.name)};
  }
  return leftover;
}

void refuse_or_note(Job& job, const Phantom& phantom, Phantoms phantoms) {
  if (phantom.what.empty()) return;
  if (phantoms == Phantoms::refuse) {
    const auto batch = job.job_id.empty() ? "" : format("{} job {} on ", job.scheduler, job.job_id);
    throw InputError(phantom.what, batch + "host " + job.host, phantom.hint).of(Code::launcher);
  }
  job.phantom = phantom.what;
  job.phantom_hint = phantom.hint;
}

}  // namespace

bool is_given(const Job& job, const char* field) {
  return std::ranges::find(job.guessed, field) == job.guessed.end();
}

bool is_known_single_node(const Job& job) {
  return job.nodes == 1 && (is_given(job, "nodes") || is_given(job, "local_world"));
}

HostFacts read_host_facts(const Environment& environment) {
  constexpr size_t kLargestFile = 16 << 20;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  HostFacts result{host.data(), std::nullopt};
  // only a process without a launcher needs the file: ten thousand ranks need not all open it
  if (!is_set(environment, "PBS_NODEFILE") || detect_launcher(environment) != "none") return result;
  try {
    result.node_file =
        base::read_small_file(text_of(environment, "PBS_NODEFILE"), kLargestFile, "PBS_NODEFILE");
  } catch (const InputError&) {  // a task that pbsdsh started has none
  }
  return result;
}

std::vector<int> parse_task_counts(const std::string& text) {
  constexpr size_t kMostNodes = 1'000'000;
  std::vector<int> counts;
  std::istringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    int tasks = 0, repeat = 1, length = 0;
    const auto is_whole = [&] { return length == static_cast<int>(part.size()); };
    std::sscanf(part.c_str(), "%9d%n(x%9d)%n", &tasks, &length, &repeat, &length);
    if (!is_whole() || tasks < 1 || repeat < 1 || counts.size() + static_cast<size_t>(repeat) > kMostNodes) {
      throw InputError(format("malformed task counts '{}'", text.substr(0, 60)), kTasksPerNode,
                       "correct it: 2(x2),1 means 2, 2 and 1 tasks on three nodes");
    }
    counts.insert(counts.end(), static_cast<size_t>(repeat), tasks);
  }
  return counts;
}

void check_environment(const Environment& environment, const std::string& choice) {
  if (const auto* row = find_launcher(environment, choice)) read_declared(*row, environment);
}

Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi, const std::string& choice,
             const HostFacts& surroundings, Phantoms phantoms) {
  Job job;
  const Launcher* row = find_launcher(environment, choice);
  set_launcher(job, environment, row, choice);
  set_scheduler(job, environment);
  job.host = surroundings.host;
  job.because["host"] = "gethostname";
  const auto check_phantom = [&] {
    refuse_or_note(job, find_phantom(environment, row, mpi.has_value(), surroundings, job), phantoms);
  };
  // where MPI says "0 of 1", the phantom is the cause and a rank that differs only its symptom
  if (choice != "none" && mpi && mpi->world == 1) check_phantom();
  place_rank(job, row, environment, mpi, choice);
  if (choice != "none" && !mpi && job.world == 1) check_phantom();
  if (choice == "auto" && row && !mpi) refuse_or_note(job, find_leftover(environment, *row), phantoms);
  return job;
}

}  // namespace lockstep::launch
