// Variables of the environment that make a run slow, strange, or different from rank to rank.
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

bool is_on(const std::string& value) {
  return !value.empty() && value != "0" && value != "false" && value != "FALSE" && value != "no";
}
bool is_there(const std::string&) {
  return true;
}
bool is_no_count(const std::string& value) {
  return value.empty() || value.find_first_not_of("0123456789,") != std::string::npos || value[0] == '0';
}
bool is_detail(const std::string& value) {
  return value == "DETAIL";
}
bool is_sequential(const std::string& value) {
  return value == "SEQUENTIAL" || value == "sequential";
}
bool hides_all(const std::string& value) {
  return value.empty() || value.starts_with("-") || value == "NoDevFiles";
}
bool binds(const std::string& value) {
  return is_on(value) && value != "disabled" && value != "none";
}
struct Odd {
  const char* name;
  bool (*is_odd)(const std::string& value);
  const char* why;
};

constexpr Odd kOdd[] = {
    {"OMP_NUM_THREADS", is_no_count, "is no count: libraries take one each their own way"},
    {"OMP_PROC_BIND", binds, "binds the threads of every rank, which may all take the same cores"},
    {"KMP_AFFINITY", binds, "binds the threads of every rank, which may all take the same cores"},
    {"GOMP_CPU_AFFINITY", is_there, "binds the threads of every rank to the same cores"},
    {"MKL_THREADING_LAYER", is_sequential, "leaves matrix products one thread"},
    {"MKL_DEBUG_CPU_TYPE", is_there, "makes oneMKL take the processor for another one"},
    {"NCCL_P2P_DISABLE", is_on, "keeps GPUs of a node from copying to each other directly"},
    {"NCCL_SHM_DISABLE", is_on, "sends what stays on a node over the network"},
    {"NCCL_IB_DISABLE", is_on, "keeps NCCL off InfiniBand"},
    {"NCCL_NET_DISABLE", is_on, "keeps NCCL off the network"},
    {"TORCH_DISTRIBUTED_DEBUG", is_detail, "compares every collective before it runs, which is slow"},
    {"CUDA_LAUNCH_BLOCKING", is_on, "makes every kernel wait, which is slow"},
    {"CUDA_VISIBLE_DEVICES", hides_all, "hides every GPU"},
    {"MALLOC_CHECK_", is_on, "makes every allocation slow"},
    {"MALLOC_PERTURB_", is_on, "makes every allocation slow"},
    {"LD_PRELOAD", is_on, "puts a library before ours"},
    {"HWLOC_SYNTHETIC", is_there, "makes up a machine"},
    {"HWLOC_XMLFILE", is_there, "shows another machine's cores"},
};

std::optional<Finding> odd_in(const RankFacts& facts) {
  std::vector<std::string> parts;
  for (const Odd& row : kOdd) {
    const auto found = facts.variables.find(row.name);
    const bool matters = row.is_odd != hides_all || facts.walls.nvidia_kernel || facts.walls.nvidia_devices;
    if (found != facts.variables.end() && matters && row.is_odd(found->second))
      parts.push_back(format("{}={} {}", row.name, base::printable(found->second), row.why));
  }
  if (!facts.walls.no_folder.empty())
    parts.push_back(format("TMPDIR={} is no folder on {}: MPI puts its sockets there",
                           base::printable(facts.walls.no_folder), facts.job.host));
  if (parts.empty()) return std::nullopt;
  return warn(base::join(parts, "; "),
              "unset what you did not mean: look in ~/.bashrc, modules and the job's script");
}

// What one launcher sets differently on each rank says nothing; these are people's.
constexpr std::string_view kSame[] = {"NCCL_", "GLOO_",  "OMP_",      "MKL_",
                                      "KMP_",  "TORCH_", "LOCKSTEP_", "ATEN_"};

bool is_a_persons(const std::string& name) {
  for (const auto prefix : kSame) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

std::string difference_of_variables(const Picture& picture) {
  std::vector<comm::Facts> all;
  for (const RankFacts& facts : picture.ranks) {
    comm::Facts own;
    for (const auto& [name, value] : facts.variables) {
      if (is_a_persons(name)) own.emplace_back(name, value);
    }
    all.push_back(own);
  }
  return comm::difference(all);
}

}  // namespace

Findings judge_variables(const Picture& picture) {
  Findings findings = of_ranks(picture, odd_in, [] { return fine("none that is known to slow a run"); });
  const auto difference = difference_of_variables(picture);
  if (difference.empty()) return findings;
  if (findings.front().verdict == FindingLevel::ok) findings.clear();
  findings.push_back(warn(difference, "set the same on every rank: srun --export=ALL, mpirun -x NAME"));
  return findings;
}

}  // namespace lockstep::doctor
