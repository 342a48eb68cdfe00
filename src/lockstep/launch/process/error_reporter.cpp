#include "lockstep/launch/process/error_reporter.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/launchers.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Each is the same for all ranks that one launcher started, and another's elsewhere.
constexpr std::array<const char*, 7> kJobs = {"PMIX_NAMESPACE",  "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID",
                                              "PALS_APID",       "FLUX_JOB_ID",   "JSM_NAMESPACE_SIZE",
                                              "LOCKSTEP_MEETING"};
// What tells such jobs apart further.
constexpr std::array<const char*, 5> kMore = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "MASTER_PORT",
                                              "TORCHELASTIC_RESTART_COUNT"};

std::optional<int> valid_number(const Environment& environment, const char* name) {
  try {
    return number_of(environment, name);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::optional<RankOf> rank_of(const Launcher& row, const Environment& environment) {
  if (row.only_by_choice || (row.announced && in_interactive_slurm_step(environment))) return std::nullopt;
  if (!is_set(environment, row.rank) || (row.world && !is_set(environment, row.world))) return std::nullopt;
  const auto rank = valid_number(environment, row.rank);
  const auto world = row.world ? valid_number(environment, row.world) : rank.value_or(0) + 2;
  if (!rank || !world || *rank >= *world) return std::nullopt;
  return RankOf{*rank, *world, valid_number(environment, row.local_world ? row.local_world : "") == world};
}

// Log files apart, or terminals apart, are read apart. mpirun's pipes are one each and read together.
std::string place_of_errors() {
  struct stat facts {};
  if (::fstat(STDERR_FILENO, &facts) != 0) return "";
  if (S_ISREG(facts.st_mode)) return format("file {} {}", facts.st_dev, facts.st_ino);
  return S_ISCHR(facts.st_mode) ? format("device {}", facts.st_rdev) : "";
}

// what the ranks of one launcher have in common; empty where none says that it started us
std::string job_of(const Environment& environment) {
  std::string text;
  for (const char* name : kJobs) {
    if (is_set(environment, name)) text += quote(environment, name) + " ";
  }
  if (is_set(environment, "PMI_RANK")) text += format("below {} ", ::getppid());
  if (text.empty()) return "";
  for (const char* name : kMore) text += quote(environment, name) + " ";
  return text + place_of_errors();
}

sockaddr_un address_of(const std::string& name, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);  // the 0 before it: no file
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

template <class Call>
int with_address(const Call& call, const base::Descriptor& socket, const std::string& name) {
  socklen_t size = 0;
  const auto address = address_of(name, size);
  return call(socket.number(), reinterpret_cast<const sockaddr*>(&address), size);
}

base::Descriptor datagram_socket() {
  return base::Descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

}  // namespace

RankOf rank_by_environment(const Environment& environment) {
  std::optional<RankOf> found;
  for (const auto& row : launchers()) {
    const auto rank = rank_of(row, environment);
    if (rank && (!found || (found->rank == 0 && rank->rank > 0))) found = rank;
  }
  return found.value_or(RankOf{});
}

ErrorReporter::ErrorReporter(const Environment& environment) {
  const std::string job = job_of(environment);
  if (job.empty()) return;
  name_ = format("lockstep-reporter-{}-{:x}", ::getuid(), std::hash<std::string>{}(job));
  claim_ = datagram_socket();
  // where no name may be bound there is nobody to hear, and each speaks for itself
  ours_ = !claim_ || with_address(::bind, claim_, name_) == 0 || errno != EADDRINUSE;
}

bool ErrorReporter::has_reported(std::chrono::milliseconds patience) const {
  if (ours_) return false;
  const auto end = Clock::now() + patience;
  for (; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
    const base::Descriptor socket = datagram_socket();
    if (with_address(::connect, socket, name_) != 0) return true;
  }
  return false;
}

}  // namespace lockstep::launch
