// What a node gives its ranks: memory, /dev/shm, limits, a container, a name.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/open_files.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

constexpr long long kMiB = 1 << 20, kGiB = 1 << 30;
constexpr long long kLittle = kGiB, kTooLittle = 256 * kMiB;  // of memory, for a rank
constexpr long long kSmallShm = 128 * kMiB;                   // a container's default is 64
constexpr const char* kShm =
    "docker run --ipc=host, or --shm-size=1g; else clear away what dead processes left there";

long long room_in(const Memory& memory) {
  if (memory.limit < 0) return memory.available;
  const long long left = std::max(0LL, memory.limit - std::max(0LL, memory.used));
  return memory.available < 0 ? left : std::min(left, memory.available);
}

std::string memory_text(const Memory& memory) {
  std::string text = format("{} available of {}", bytes(memory.available), bytes(memory.total));
  if (memory.limit >= 0)
    text += format(", {} of {} used ({})", bytes(memory.used), bytes(memory.limit), memory.limit_file);
  return text + format(", swap {}", memory.swap == 0 ? "none" : bytes(memory.swap));
}

Findings little_memory(const Machine& machine) {
  const RankFacts& first = *machine.front();
  const long long room = room_in(first.memory), share = room / static_cast<long long>(machine.size());
  if (room < 0 || share >= kLittle) return {};
  const std::string says = format("{} for each of {} rank{} ({})", bytes(share), machine.size(),
                                  machine.size() == 1 ? "" : "s", memory_text(first.memory));
  const char* remedy =
      "ask for more memory (--mem, -l mem=) or start fewer ranks a node; is another program at work?";
  return {share < kTooLittle ? fail(says, remedy) : warn(says, remedy)};
}

Findings bad_shm(const Machine& machine) {
  const Memory& memory = machine.front()->memory;
  for (const RankFacts* facts : machine) {
    if (!facts->memory.shm_error.empty())
      return {fail(format("{}, and {} of {} are free there", facts->memory.shm_error,
                          bytes(std::max(0LL, memory.shm_free)), bytes(std::max(0LL, memory.shm_total))),
                   kShm)};
    if (facts->memory.shm_device != memory.shm_device)
      return {fail("ranks of this machine see different /dev/shm: they cannot share memory",
                   "start them in one container, or with --ipc=host")};
  }
  if (memory.shm_free >= kSmallShm) return {};
  return {warn(format("/dev/shm has {} free of {}: NCCL takes some 10 MiB a pair of ranks",
                      bytes(memory.shm_free), bytes(memory.shm_total)),
               kShm)};
}

bool below(long long value, long long bound) {
  return value >= 0 && value < bound;
}

std::optional<Finding> few_files(const RankFacts& facts) {
  const auto needed = static_cast<long long>(comm::files_for(facts.job));
  const long long hard = facts.limits.files.hard;
  if (below(hard, needed))
    return fail(format("a process may open {} files, and {} rank{} need{} {}", hard, facts.job.world,
                       facts.job.world == 1 ? "" : "s", facts.job.world == 1 ? "s" : "", needed),
                "raise the hard limit (ulimit -Hn, limits.conf), or choose the backend mpi");
  if (below(hard, 1024))
    return warn(format("a process may open {} files", hard), "raise the hard limit: ulimit -Hn");
  return std::nullopt;
}

struct Least {
  Limit ProcessLimits::*limit;
  const char* what;
  const char* option;
  long long bound;
  const char* why;
};

constexpr Least kLeast[] = {
    {&ProcessLimits::stack, "a stack", "-s", 1 * kMiB, "libtorch and MPI need more"},
    {&ProcessLimits::processes, "processes of a user", "-u", 256,
     "each rank has a dozen threads, which count"},
    {&ProcessLimits::memory, "a process's address space", "-v", 64 * kGiB, "CUDA alone reserves more"},
};

std::optional<Finding> low_limit(const RankFacts& facts) {
  if (auto files = few_files(facts)) return files;
  for (const Least& row : kLeast) {
    const Limit& limit = facts.limits.*row.limit;
    if (!below(limit.soft, row.bound)) continue;
    const bool counted = row.limit == &ProcessLimits::processes;
    return warn(format("{}: at most {}; {}", row.what,
                       counted ? std::to_string(limit.soft) : bytes(limit.soft), row.why),
                format("ulimit {} unlimited before the program, or ask who runs the machine", row.option));
  }
  if (facts.walls.infiniband && below(facts.limits.locked.soft, kGiB))
    return warn(format("locked memory: at most {}, and InfiniBand locks what it sends",
                       bytes(facts.limits.locked.soft)),
                "ulimit -l unlimited; for Slurm: PropagateResourceLimitsExcept=MEMLOCK");
  return std::nullopt;
}

std::string limits_text(const ProcessLimits& limits) {
  return format("files {} (hard {}), locked {}, stack {}, core {}", limits.files.soft, limits.files.hard,
                bytes(limits.locked.soft), bytes(limits.stack.soft), bytes(limits.core.soft));
}

}  // namespace

Findings judge_memory(const Picture& picture) {
  return of_machines(picture, little_memory, [&] { return fine(memory_text(picture.ranks.front().memory)); });
}

Findings judge_shm(const Picture& picture) {
  return of_machines(picture, bad_shm, [&] {
    const Memory& memory = picture.ranks.front().memory;
    return fine(format("/dev/shm: {} free of {}", bytes(memory.shm_free), bytes(memory.shm_total)));
  });
}

Findings judge_limits(const Picture& picture) {
  return of_ranks(picture, low_limit, [&] { return fine(limits_text(picture.ranks.front().limits)); });
}

Findings judge_container(const Picture& picture) {
  return of_ranks(
      picture,
      [](const RankFacts& facts) -> std::optional<Finding> {
        const Walls& walls = facts.walls;
        if (walls.cuda_library || !(walls.nvidia_devices || walls.nvidia_kernel) || facts.wanted == "cpu")
          return std::nullopt;
        return warn(format("there are GPUs here, and {} lacks the driver's library (libcuda.so.1)",
                           walls.container.empty() ? "this system" : "the " + walls.container + " container"),
                    walls.container.empty()
                        ? "install the driver's library, or add its folder to LD_LIBRARY_PATH"
                        : "docker run --gpus all; apptainer exec --nv");
      },
      [&] {
        const auto& container = picture.ranks.front().walls.container;
        return fine(container.empty() ? "none that is known of" : container);
      });
}

Findings judge_host(const Picture& picture) {
  const bool many = machines_of(picture).size() > 1;
  return of_ranks(
      picture,
      [&](const RankFacts& facts) -> std::optional<Finding> {
        if (facts.host_error.empty()) return std::nullopt;
        const std::string says =
            format("the host's name {} does not resolve: {}", facts.job.host, facts.host_error);
        const char* remedy =
            "add it to /etc/hosts or DNS; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME do without it";
        const bool done_without = facts.variables.contains("GLOO_SOCKET_IFNAME");
        return many && !done_without ? fail(says, remedy) : warn(says, remedy);
      },
      [&] {
        const RankFacts& first = picture.ranks.front();
        return fine(format("{} is {}", first.job.host, base::join(first.host_addresses, ", ")));
      });
}

Findings judge_signals(const Picture& picture) {
  return of_ranks(
      picture,
      [](const RankFacts& facts) -> std::optional<Finding> {
        const auto& blocked = facts.walls.blocked_signals;
        if (blocked.empty()) return std::nullopt;
        return fail(format("{} {} blocked: a job's end would come without a checkpoint",
                           base::join(blocked, ", "), blocked.size() == 1 ? "is" : "are"),
                    "whoever starts the program blocks them: look at the script, wrapper or MPI before it");
      },
      [] { return fine("SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 reach the ranks"); });
}

}  // namespace lockstep::doctor
