#pragma once
// `lockstep doctor`: what is wrong with this node, this job and its network, and what to do about it. What
// one rank knows about itself and its node, what a check finds, and the table of rules over all ranks' facts.
// To add a fact: a field here, its name in the list of JSON fields below, and a line in collect.cpp. Rules
// are pure functions, so a test can make up a cluster.

#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/job.h"

namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Job, rank, world, local_rank, local_world, node_rank, nodes,
                                                host, launcher, scheduler, job_id, because, phantom,
                                                phantom_hint, warnings, guessed)
}

namespace lockstep::doctor {

struct DoctorSettings {
  std::string launcher = "auto";
  std::string device = "auto";
  std::string config = {};  // its data and run folders are checked; empty = the defaults
  std::string data = {};    // a folder in place of the config's
  std::string runs = {};
  bool json = false;
  std::map<std::string, std::string> versions = {};  // of the program: "libtorch" -> "2.11.0"
  launch::Environment environment = {};              // as the process found it
};

/// Collective where the ranks can meet. Prints on rank 0, or on one rank of each host where the ranks cannot
/// meet. Returns the exit status. If something hangs, prints what was found and ends the process.
int run(const DoctorSettings& settings);

// --- facts ---

struct Gpu {
  std::string uuid = {}, name = {}, bus = {};  // bus: "0000:17:00.0"
  std::string near = {};                       // the CPUs close to it, "0-15"; empty = unknown
  size_t memory = 0;                           // bytes
  int major = 0, minor = 0;                    // compute capability
};

struct Cores {
  std::string mask = {};        // CPUs (hardware threads) that this process may use, "0-3,8"
  std::string whole = {};       // the mask with the other hardware threads of its cores
  int cores = 1;                // of the mask
  int machine_cores = 1;        // of the node
  double quota = 0;             // of a control group; 0 = none
  std::string quota_file = {};  // that sets it
};

/// Bytes; -1 = not known, or no limit.
struct Memory {
  long long total = -1, available = -1, swap = -1;
  long long limit = -1, used = -1;  // of the smallest control group
  std::string limit_file = {};
  long long shm_total = -1, shm_free = -1;  // of /dev/shm
  unsigned long shm_device = 0;             // its file system
  std::string shm_error = {};               // why a file could not be created there
};

/// Of one resource; -1 = unlimited.
struct Limit {
  long long soft = -1, hard = -1;
};

struct ProcessLimits {
  Limit files = {}, locked = {}, stack = {}, processes = {}, memory = {};
};

struct RankFacts {
  Job job = {};
  long pid = 0;
  std::string machine = {};  // the same for two ranks on one machine, whatever its name is
  std::map<std::string, std::string> versions = {};   // "lockstep", "libtorch", "MPI", "kernel", ...
  std::map<std::string, std::string> variables = {};  // of the environment, those that concern a run
  std::string wanted = "auto";                        // --device
  std::string device_error = {};                      // why no device could be chosen
  std::vector<Gpu> gpus = {};                         // visible to this process
  int gpu = -1;                                       // the one it uses
  std::string gpus_because = {};                      // who counted them
  Cores cores = {};
  Memory memory = {};
  ProcessLimits limits = {};
  std::string container = {};                      // "Docker", "Apptainer", ...; empty = none detected
  bool nvidia_driver = false;                      // the node has it
  bool cuda_library = false;                       // libcuda.so.1 can be opened
  bool infiniband = false;                         // the node has such a device
  std::vector<std::string> blocked_signals = {};   // of those that end a job
  std::string missing_tmpdir = {};                 // TMPDIR, where it is not a folder
  std::string host_error = {};                     // why the host's name does not resolve
  std::vector<std::string> host_addresses = {};    // that it resolves to
  std::string cpu_capability = {};                 // what libtorch uses: "AVX512"
  bool has_avx2 = false;                           // the processor
  std::vector<std::string> torch_archs = {};       // GPU architectures libtorch was built for: "sm_90"
  std::map<std::string, std::string> failed = {};  // collector -> its error
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Gpu, uuid, name, bus, near, memory, major, minor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cores, mask, whole, cores, machine_cores, quota, quota_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Memory, total, available, swap, limit, used, limit_file,
                                                shm_total, shm_free, shm_device, shm_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Limit, soft, hard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessLimits, files, locked, stack, processes, memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, job, pid, machine, versions, variables, wanted,
                                                device_error, gpus, gpu, gpus_because, cores, memory, limits,
                                                container, nvidia_driver, cuda_library, infiniband,
                                                blocked_signals, missing_tmpdir, host_error, host_addresses,
                                                cpu_capability, has_avx2, torch_archs, failed)

/// A rank's facts, collected on its own node without asking other ranks. `begin` gets the name of each
/// collector before it starts. A collector that fails leaves its error in `failed`. The job is not known yet.
RankFacts collect(const DoctorSettings& settings, const std::function<void(const char* name)>& begin);

/// Which of its GPUs this rank uses, once its job is known.
void choose_gpu(RankFacts& facts);

/// "sm_90", "compute_90", ...: the GPU architectures in the text of at::show_config().
std::vector<std::string> architectures_in(const std::string& config);

/// "0-3,8" -> 0, 1, 2, 3, 8
std::vector<int> cpus_in(const std::string& mask);

/// The facts of all ranks, or of one where the ranks cannot meet; by rank.
struct Cluster {
  std::vector<RankFacts> ranks = {};
  /// How many ranks the job has.
  int world() const { return ranks.empty() ? 0 : ranks.front().job.world; }
  bool complete() const { return static_cast<size_t>(world()) == ranks.size(); }
};

enum class FindingLevel { ok, warning, failure };
NLOHMANN_JSON_SERIALIZE_ENUM(FindingLevel, {{FindingLevel::ok, "ok"},
                                            {FindingLevel::warning, "warning"},
                                            {FindingLevel::failure, "failure"}})

struct Finding {
  std::string says;         // one line
  std::string remedy = {};  // what to do; empty where all is well
  FindingLevel verdict = FindingLevel::ok;
  std::string drawing = {};  // lines below it, for example a table
  std::string check = {};    // the check's name
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, verdict, says, remedy, drawing, check)

using Findings = std::vector<Finding>;

inline constexpr auto kWarning = FindingLevel::warning, kFailure = FindingLevel::failure;

inline Finding ok(std::string says) {
  return {std::move(says)};
}
inline Finding warning(std::string says, std::string remedy) {
  return {std::move(says), std::move(remedy), kWarning};
}
inline Finding failure(std::string says, std::string remedy) {
  return {std::move(says), std::move(remedy), kFailure};
}
inline void append(Findings& findings, Findings more) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

// --- rules ---

/// The ranks of one machine, in order.
using Machine = std::vector<const RankFacts*>;

/// What is wrong with a rank, a machine or the cluster, how bad that is, and what to do. A finding with a
/// level or remedy of its own keeps it.
struct Rule {
  FindingLevel level;
  std::variant<Findings (*)(const RankFacts&, const Cluster&), Findings (*)(const Machine&),
               Findings (*)(const Cluster&)>
      problems;
  const char* remedy;
};

/// One row of the table: rules, and what is printed where none of them finds a problem (null: nothing).
struct Check {
  std::string_view name;
  std::vector<Rule> rules;
  std::string (*ok)(const Cluster& cluster) = nullptr;
  std::string (*drawing)(const Cluster& cluster) = nullptr;  // below its first finding; may be null
};

/// The table, in the order in which findings are printed.
std::vector<Check> checks();
/// Its second part: cores, threads, GPUs, libtorch, host name, memory, limits, container, signals.
std::vector<Check> node_checks();
/// The findings of one check. The same problem of several ranks is one finding.
Findings evaluate(const Check& check, const Cluster& cluster);

/// Findings of single ranks, by rank: the same text of several is one finding, which names them.
Findings of_ranks(const std::vector<std::pair<int, Finding>>& found, size_t world);
/// An error as a finding: what and where, with the error's own hint.
Finding failure_of(const std::exception& error);

std::vector<Machine> machines_of(const Cluster& cluster);
using base::counted;
/// "3.5 GiB"; "unlimited" below zero.
std::string bytes_text(long long number);
/// The first `most` of them: "a, b, and 3 more"
std::string some_of(std::vector<std::string> parts, size_t most, const char* between = ", ");

}  // namespace lockstep::doctor
