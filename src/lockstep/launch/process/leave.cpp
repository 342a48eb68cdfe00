#include "lockstep/launch/process/leave.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/process/report.h"
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

namespace {

using Tell = std::function<std::exception_ptr(const std::string&)>;

const std::terminate_handler kAtStart = std::get_terminate();
std::string (*more_words)() = nullptr;
constexpr std::chrono::seconds kLeaves{10};

// Given back when memory ends, so that there is some to say so with.
std::atomic<char*> reserve = nullptr;

void out_of_memory() {
  delete[] reserve.exchange(nullptr);
  throw std::bad_alloc();
}

struct Listeners {
  std::mutex mutex;
  std::vector<std::weak_ptr<Tell>> all;
};

Listeners& listeners() {
  static auto* const kept = new Listeners;  // threads may still throw while statics go
  return *kept;
}

std::exception_ptr tell_listeners(const std::string& what) {
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::exception_ptr better;
  for (const auto& listener : listeners().all) {
    const auto tell = listener.lock();
    if (auto error = tell ? (*tell)(what) : nullptr; error && !better) better = std::move(error);
  }
  return better;
}

// gloo finds in a thread of its own that what came is no answer to what was asked, and throws there.
std::string in_words(const std::string& text) {
  constexpr const char* kMismatch = "op.preamble.length <= op.nbytes. ";
  const auto place = text.find(kMismatch);
  if (place == std::string::npos) return text;
  const auto numbers = text.substr(place + std::char_traits<char>::length(kMismatch));
  const auto expected = numbers.find(" vs ");
  if (expected == std::string::npos) return text;
  const auto asked = numbers.substr(expected + 4);
  return "the ranks' calls differ: a message of " + numbers.substr(0, expected) +
         " bytes came where one of " + asked.substr(0, asked.find('.')) +
         " was expected\n  where: the process group, gloo\n  to do: run with "
         "TORCH_DISTRIBUTED_DEBUG=DETAIL, which names every rank's call; look for a branch that not every "
         "rank takes";
}

// Where another thread has met an error first, it is that one's to say.
void let_another_speak() {
  if (another_thread_leaves()) std::this_thread::sleep_for(kLeaves);
}

[[noreturn]] void end_with(const std::string& text, const std::exception* error = nullptr) {
  let_another_speak();
  try {
    const auto better = tell_listeners(text.substr(0, text.find('\n')));
    let_another_speak();  // to judge takes a moment
    if (better) std::rethrow_exception(better);
  } catch (const Error& better) {
    log::error(describe(better) + (more_words ? more_words() : ""));
    note_fault(better);
    ::_exit(kFailed);
  } catch (const std::exception&) {  // the others see this process end
  }
  log::error(text);
  if (error) note_fault(*error);
  ::_exit(kFailed);
}

// For what no catch sees: an error in a thread, or inside of another one's clean-up.
[[noreturn]] void end_in_words() {
  const auto thrown = std::current_exception();
  if (!thrown) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    end_with(in_words(describe(error)) + (more_words ? more_words() : ""), &error);
  } catch (...) {
    end_with("something was thrown that is no std::exception");
  }
}

}  // namespace

void never_abort(std::string (*more)()) {
  constexpr size_t kReserve = 256 << 10;
  if (!std::get_new_handler()) {
    reserve = new char[kReserve];
    std::set_new_handler(out_of_memory);
  }
  if (std::get_terminate() != kAtStart) return;
  more_words = more;
  std::set_terminate(end_in_words);
}

std::shared_ptr<void> before_the_end(Tell tell) {
  auto listener = std::make_shared<Tell>(std::move(tell));
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::erase_if(listeners().all, [](const auto& each) { return each.expired(); });
  listeners().all.push_back(listener);
  // who lets go of it while it is told waits, and the process ends there
  return {listener.get(), [listener](void*) mutable {
            const std::lock_guard<std::mutex> guard(listeners().mutex);
            listener.reset();
          }};
}

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
