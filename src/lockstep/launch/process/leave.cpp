#include "lockstep/launch/process/leave.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/launch/process/error_reporter.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTogether = 500ms;   // ranks that fail of one cause fail within this time
constexpr auto kFinalize = 5s;      // all agreed to leave: longer than this and a peer died meanwhile
constexpr auto kHearRankZero = 1s;  // without MPI: rank 0 speaks first, and its launcher may end us by then
constexpr auto kHearReport = 4s;    // for who failed first on this host to speak
constexpr auto kExit = 3s;
constexpr auto kStay = 3s;  // on a busy machine ranks that fail of one cause come that far apart

RankOf rank_of_mpi() {
  RankOf self;
  if (!mpi_is_up()) return self;
  mpi::calls().comm_rank(mpi::Comm::world, &self.rank);
  mpi::calls().comm_size(mpi::Comm::world, &self.world);
  return self;
}

std::string host_name() {
  return current_surroundings({}).host;
}

void say(const std::string& text, const RankOf& self, bool alone) {
  if (alone && self.world > 1) {
    log::error(text + format("\n  on: rank {} of {}, host {}", self.rank, self.world, host_name()));
  } else {
    log::error(text);
  }
}

bool all_failed() {
  mpi::Request request = mpi::Request::null;
  if (last_words_comm() == mpi::Comm::null) return false;
  if (mpi::calls().ibarrier(last_words_comm(), &request) != mpi::kSuccess) return false;
  const auto deadline = Clock::now() + kTogether;
  for (int done = 0; Clock::now() < deadline; std::this_thread::sleep_for(1ms)) {
    if (mpi::calls().test(&request, &done, mpi::kIgnore) != mpi::kSuccess) return false;
    if (done) return true;
  }
  return false;
}

bool all_say(const std::string& text) {
  const unsigned long hash = std::hash<std::string>{}(text);
  unsigned long bounds[2] = {hash, ~hash}, least[2] = {};
  const int code =
      mpi::calls().allreduce(bounds, least, 2, mpi::Type::unsigned_long, mpi::Op::min, last_words_comm());
  return code == mpi::kSuccess && least[0] == hash && least[1] == ~hash;
}

// The rank that failed first has the cause; the others lost their peer. Ages are taken at a barrier's end, so
// that no clocks need to agree.
int first_to_fail(Clock::duration age, int rank) {
  struct {
    double age;
    int rank;
  } own{std::chrono::duration<double>(age).count(), rank}, oldest{};
  const int code =
      mpi::calls().allreduce(&own, &oldest, 1, mpi::Type::double_int, mpi::Op::maxloc, last_words_comm());
  return code == mpi::kSuccess ? oldest.rank : rank;
}

int leave_together(int status, const std::string& text, const RankOf& self, Clock::duration age) {
  const Alarm alarm(kFinalize, [status] { _exit(status); });
  const int first = first_to_fail(age, self.rank);
  const bool alike = all_say(text);
  if (self.rank == (alike ? 0 : first)) say(text, self, !alike);
  mpi::calls().bcast(&status, 1, mpi::Type::int32, alike ? 0 : first,
                     last_words_comm());  // without it: one's own status
  mpi::calls().finalize();
  return status;
}

// Several may have failed while others work on. Who failed first on a host speaks for it; of several hosts
// the lower ranks speak first, and the abort silences the rest.
[[noreturn]] void leave_alone(int status, const std::string& text, const RankOf& self,
                              const ErrorReporter& reporter) {
  if (reporter.is_ours()) std::this_thread::sleep_for(100ms * std::min(self.rank, 20));
  if (!reporter.has_reported(kHearReport)) say(text, self, true);
  mpi::calls().abort(mpi::Comm::world, status);
  _exit(status);
}

// Who has spoken stays a little, so that a slower rank finds that another has reported.
void report_once(const ErrorReporter& reporter, const std::function<void()>& speak) {
  if (reporter.has_reported(kHearReport)) return;
  speak();
  if (reporter.is_ours() && reporter.is_shared()) std::this_thread::sleep_for(kStay);
}

void leave_unjoined(const std::string& text, const RankOf& self, const ErrorReporter& reporter) {
  if (self.world == 1) return say(text, self, true);
  const bool may_be_heard_elsewhere = self.rank > 0 && !self.one_host;
  if (reporter.is_ours() && may_be_heard_elsewhere) std::this_thread::sleep_for(kHearRankZero);
  report_once(reporter, [&] { say(text, self, true); });
}

// Who fails first has the cause.
struct FirstFailure {
  Clock::time_point at = Clock::now();
  ErrorReporter reporter{current_environment()};
};

std::atomic<std::thread::id> leaves = {};  // who called first

// NCCL's watchdogs of a group that was given up run on, and read what libtorch's destructors free.
bool may_have_watchdogs() {
  return ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

// What libraries leave for the exit may wait for a GPU whose work does not end, or for a stream that nobody
// reads. What is registered last is called first.
void bound_exit() {
  if (may_have_watchdogs()) leave_to_the_kernel();
  ::on_exit([](int status, void*) { static_cast<void>(new Alarm(kExit, [status] { ::_exit(status); })); },
            nullptr);
}

const FirstFailure& first_failure() {
  static const FirstFailure first;
  std::thread::id nobody;
  leaves.compare_exchange_strong(nobody, std::this_thread::get_id());
  return first;
}

}  // namespace

void leave_to_the_kernel() {
  ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

void claim_error_report() {
  first_failure();
}

bool another_thread_leaves() {
  const auto who = leaves.load();
  return who != std::thread::id() && who != std::this_thread::get_id();
}

int leave_failed(int status, const std::string& text) {
  const auto& [failed_at, reporter] = first_failure();
  bound_exit();
  std::signal(SIGTERM, SIG_DFL);  // whoever ends us now is right
  const Environment environment = current_environment();
  if (const RankOf self = rank_of_mpi(); self.world > 1) {
    if (!all_failed()) leave_alone(status, text, self, reporter);
    return leave_together(status, text, self, Clock::now() - failed_at);
  }
  // with MPI this is one of several that MPI calls "0 of 1", or truly alone
  leave_unjoined(text, rank_by_environment(environment), reporter);
  if (mpi_is_up()) mpi::calls().finalize();
  return status;
}

void say_for_job(const std::string& text) {
  report_once(ErrorReporter(current_environment()), [&] { log::error(text); });
}

}  // namespace lockstep::launch
