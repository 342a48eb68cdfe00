#include "launch/leave.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/alarm.h"
#include "launch/claims.h"
#include "launch/mpi.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTogether = 500ms;   // ranks that fail of one cause fail within this time
constexpr auto kFinalize = 5s;      // all agreed to leave: longer than this and a peer died meanwhile
constexpr auto kHearRankZero = 1s;  // without MPI: rank 0 speaks first, and its launcher may end us by then

struct Rank {
  int rank = 0;
  int world = 1;
};

bool mpi_is_up() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

Rank rank_of_mpi() {
  Rank self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.world);
  return self;
}

// the environment may be what is wrong, so no more than a guess
Rank rank_of_environment() {
  try {
    const Environment environment = current_environment();
    const auto* launcher = launch::find_launcher(environment, "auto");
    if (!launcher) return {};
    const auto claims = launch::read_claims(*launcher, environment);
    return {claims.rank.value_or(0), claims.world.value_or(1)};
  } catch (const Error&) {
    return {};
  }
}

std::string host_name() {
  return current_surroundings({}).host;
}

void say(const std::string& text, const Rank& self, bool alone) {
  if (alone && self.world > 1) {
    log::error(text + format("\n  on: rank {} of {}, host {}", self.rank, self.world, host_name()));
  } else {
    log::error(text);
  }
}

bool all_failed() {
  MPI_Request request = MPI_REQUEST_NULL;
  if (last_words_comm() == MPI_COMM_NULL) return false;
  if (MPI_Ibarrier(last_words_comm(), &request) != MPI_SUCCESS) return false;
  const auto deadline = Clock::now() + kTogether;
  for (int done = 0; Clock::now() < deadline; std::this_thread::sleep_for(1ms)) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done) return true;
  }
  return false;
}

bool all_say(const std::string& text) {
  const unsigned long hash = std::hash<std::string>{}(text);
  unsigned long bounds[2] = {hash, ~hash}, least[2] = {};
  const int code = MPI_Allreduce(bounds, least, 2, MPI_UNSIGNED_LONG, MPI_MIN, last_words_comm());
  return code == MPI_SUCCESS && least[0] == hash && least[1] == ~hash;
}

// The rank that failed first has the cause; the others lost their peer. Ages are taken at a barrier's end, so
// that no clocks need to agree.
int first_to_fail(Clock::duration age, int rank) {
  struct {
    double age;
    int rank;
  } own{std::chrono::duration<double>(age).count(), rank}, oldest{};
  const int code = MPI_Allreduce(&own, &oldest, 1, MPI_DOUBLE_INT, MPI_MAXLOC, last_words_comm());
  return code == MPI_SUCCESS ? oldest.rank : rank;
}

int leave_together(int status, const std::string& text, const Rank& self, Clock::duration age) {
  const Alarm alarm(kFinalize, [status] { _exit(status); });
  const int first = first_to_fail(age, self.rank);
  const bool alike = all_say(text);
  if (self.rank == (alike ? 0 : first)) say(text, self, !alike);
  MPI_Bcast(&status, 1, MPI_INT, alike ? 0 : first, last_words_comm());  // without it: one's own status
  MPI_Finalize();
  return status;
}

// several may have failed while others work on: the lower ranks speak first, and the abort silences the rest
[[noreturn]] void leave_alone(int status, const std::string& text, const Rank& self) {
  std::this_thread::sleep_for(100ms * std::min(self.rank, 20));
  say(text, self, true);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

}  // namespace

int leave_failed(int status, const std::string& text) {
  const auto failed_at = Clock::now();
  std::signal(SIGTERM, SIG_DFL);  // whoever ends us now is right
  const Rank self = mpi_is_up() ? rank_of_mpi() : rank_of_environment();
  if (mpi_is_up() && self.world > 1) {
    if (!all_failed()) leave_alone(status, text, self);
    return leave_together(status, text, self, Clock::now() - failed_at);
  }
  // with MPI this is one of several that MPI calls "0 of 1", or truly alone
  if (rank_of_environment().rank > 0) std::this_thread::sleep_for(kHearRankZero);
  say(text, self, true);
  if (mpi_is_up()) MPI_Finalize();
  return status;
}

}  // namespace lockstep
