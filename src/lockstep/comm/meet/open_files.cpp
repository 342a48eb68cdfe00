#include "lockstep/comm/meet/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {
constexpr uint64_t kOwnFiles = 256;  // the program's, MPI's and libtorch's
}

uint64_t make_room_for_files(uint64_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return files;  // unknown: whoever opens one will see
  const auto wanted = std::min<rlim_t>(files, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    const rlim_t before = std::exchange(limit.rlim_cur, wanted);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
  }
  return limit.rlim_cur;
}

uint64_t files_for(const Job& job) {
  const auto world = static_cast<uint64_t>(job.world);
  return kOwnFiles + world + (job.rank == 0 ? world : 0);
}

void check_room_for_gloo(const Job& job) {
  const uint64_t room = make_room_for_files(files_for(job));
  if (room + kOwnFiles >= files_for(job)) return;  // less than that is surely too few
  throw InputError(format("gloo connects each rank with all {} others, and a process may open {} files here",
                          job.world - 1, room),
                   format("rank {} of {} on host {}", job.rank, job.world, job.host),
                   "choose the backend mpi or nccl, or ask for a higher limit (ulimit -Hn)")
      .of(Code::open_files);
}

}  // namespace lockstep::comm
