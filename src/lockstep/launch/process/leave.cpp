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
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
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

// Variables that tell jobs of one launcher apart, beside the launcher's own (Launcher::job).
constexpr std::array<const char*, 5> kJobVariables = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "MASTER_PORT",
                                                      "TORCHELASTIC_RESTART_COUNT"};

std::optional<int> valid_number(const Environment& environment, const char* name) {
  try {
    return number_of(environment, name);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::optional<RankAndWorld> rank_of(const Launcher& row, const Environment& environment) {
  if (row.only_by_choice || (row.announced && in_interactive_slurm_step(environment))) return std::nullopt;
  if (!is_set(environment, row.rank) || (row.world && !is_set(environment, row.world))) return std::nullopt;
  const auto rank = valid_number(environment, row.rank);
  const auto world = row.world ? valid_number(environment, row.world) : rank.value_or(0) + 2;
  if (!rank || !world || *rank >= *world) return std::nullopt;
  return RankAndWorld{*rank, *world,
                      valid_number(environment, row.local_world ? row.local_world : "") == world};
}

// Ranks with log files or terminals of their own each report. mpirun reads the ranks' pipes together.
std::string place_of_errors() {
  struct stat facts {};
  if (::fstat(STDERR_FILENO, &facts) != 0) return "";
  if (S_ISREG(facts.st_mode)) return format("file {} {}", facts.st_dev, facts.st_ino);
  return S_ISCHR(facts.st_mode) ? format("device {}", facts.st_rdev) : "";
}

// The same text for all ranks that one launcher started on this host; empty if no variable identifies them.
std::string job_of(const Environment& environment) {
  std::string text;
  for (const auto& row : launchers())
    if (is_set(environment, row.job)) text += quote(environment, row.job) + " ";
  if (is_set(environment, "PMI_RANK")) text += format("below {} ", ::getppid());
  if (text.empty()) return "";
  for (const char* name : kJobVariables) text += quote(environment, name) + " ";
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

RankAndWorld rank_by_environment(const Environment& environment) {
  std::optional<RankAndWorld> found;
  for (const auto& row : launchers()) {
    const auto rank = rank_of(row, environment);
    if (rank && (!found || (found->rank == 0 && rank->rank > 0))) found = rank;
  }
  return found.value_or(RankAndWorld{});
}

ErrorReporter::ErrorReporter(const Environment& environment) {
  const std::string job = job_of(environment);
  if (job.empty()) return;
  name_ = format("lockstep-reporter-{}-{:x}", ::getuid(), std::hash<std::string>{}(job));
  claim_ = datagram_socket();
  // if binding is not allowed, each rank reports its own error
  ours_ = !claim_ || with_address(::bind, claim_, name_) == 0 || errno != EADDRINUSE;
}

bool ErrorReporter::has_reported(std::chrono::milliseconds patience) const {
  if (ours_) return false;
  for (const base::Deadline end(patience); !end.passed(); std::this_thread::sleep_for(10ms)) {
    const base::Descriptor socket = datagram_socket();
    if (with_address(::connect, socket, name_) != 0) return true;
  }
  return false;
}

namespace {

using Listener = std::function<std::exception_ptr(const std::string&)>;

const std::terminate_handler kAtStart = std::get_terminate();
std::string (*more_text)() = nullptr;
constexpr std::chrono::seconds kLeaves{10};

struct Listeners {
  std::mutex mutex;
  std::vector<std::weak_ptr<Listener>> all;
};

Listeners& listeners() {
  static auto* const kept = new Listeners;  // threads may still throw while statics are destroyed
  return *kept;
}

std::exception_ptr call_listeners(const std::string& what) {
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::exception_ptr better;
  for (const auto& listener : listeners().all) {
    const auto call = listener.lock();
    if (auto error = call ? (*call)(what) : nullptr; error && !better) better = std::move(error);
  }
  return better;
}

// A thread of gloo throws this when a message has another size than expected.
std::string explained(const std::string& text) {
  constexpr const char* kMismatch = "op.preamble.length <= op.nbytes. ";
  const auto place = text.find(kMismatch);
  if (place == std::string::npos) return text;
  const auto numbers = text.substr(place + std::char_traits<char>::length(kMismatch));
  const auto expected = numbers.find(" vs ");
  if (expected == std::string::npos) return text;
  const auto asked = numbers.substr(expected + 4);
  return "the ranks' calls differ: a message of " + numbers.substr(0, expected) +
         " bytes arrived instead of one of " + asked.substr(0, asked.find('.')) +
         "\n  --> the process group, gloo\n  hint: run with TORCH_DISTRIBUTED_DEBUG=DETAIL, which names "
         "every rank's call; look for a branch that not every rank takes";
}

// Another thread that met an error first reports it.
void wait_for_report() {
  if (another_thread_is_exiting()) std::this_thread::sleep_for(kLeaves);
}

[[noreturn]] void end_with(const std::string& text, const std::exception* error = nullptr) {
  wait_for_report();
  try {
    const auto better = call_listeners(text.substr(0, text.find('\n')));
    wait_for_report();  // the listeners took a moment
    if (better) std::rethrow_exception(better);
  } catch (const Error& better) {
    log::error(describe(better) + (more_text ? more_text() : ""));
    note_fault(better);
    ::_exit(kFailed);
  } catch (const std::exception&) {  // the other ranks notice that this process ends
  }
  log::error(text);
  if (error) note_fault(*error);
  ::_exit(kFailed);
}

// For errors that nothing catches: in a thread, or in a destructor.
[[noreturn]] void on_terminate() {
  const auto thrown = std::current_exception();
  if (!thrown) std::abort();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    end_with(explained(describe(error)) + (more_text ? more_text() : ""), &error);
  } catch (...) {
    end_with("an exception that is not a std::exception was thrown");
  }
}

}  // namespace

void exit_on_uncaught_errors(std::string (*more)()) {
  if (std::get_terminate() != kAtStart) return;
  more_text = more;
  std::set_terminate(on_terminate);
}

void announce_end(const std::string& what) {
  call_listeners(what);
}

std::shared_ptr<void> on_uncaught_error(Listener call) {
  auto listener = std::make_shared<Listener>(std::move(call));
  const std::lock_guard<std::mutex> guard(listeners().mutex);
  std::erase_if(listeners().all, [](const auto& each) { return each.expired(); });
  listeners().all.push_back(listener);
  // its owner waits for a call that is running, and the process ends there
  return {listener.get(), [listener](void*) mutable {
            const std::lock_guard<std::mutex> guard(listeners().mutex);
            listener.reset();
          }};
}

namespace {

constexpr auto kTogether = 500ms;    // ranks that fail of one cause fail within this time
constexpr auto kFinalize = 5s;       // for MPI_Finalize, once all ranks have agreed to leave
constexpr auto kRankZeroFirst = 1s;  // without MPI: rank 0 reports first, and its launcher may end us by then
constexpr auto kOtherReport = 4s;    // for the rank that failed first on this host to report
constexpr auto kExit = 3s;           // for what libraries do at exit
constexpr auto kStay = 3s;           // the reporter stays, so that slower ranks see that it has reported

RankAndWorld rank_of_mpi() {
  RankAndWorld self;
  if (!mpi_is_up()) return self;
  mpi::calls().comm_rank(mpi::Comm::world, &self.rank);
  mpi::calls().comm_size(mpi::Comm::world, &self.world);
  return self;
}

void print(const std::string& text, const RankAndWorld& self, bool names_rank = true) {
  const auto where = format("\n  note: reported by rank {} of {} on host {}", self.rank, self.world,
                            read_host_facts({}).host);
  const bool is_named = text.find(format("--> rank {} ", self.rank)) != std::string::npos;
  log::error(text + (names_rank && self.world > 1 && !is_named ? where : ""));
}

bool all_failed() {
  mpi::Request request = mpi::Request::null;
  if (failure_comm() == mpi::Comm::null) return false;
  if (mpi::calls().ibarrier(failure_comm(), &request) != mpi::kSuccess) return false;
  int done = 0;
  for (const base::Deadline end(kTogether); !end.passed(); std::this_thread::sleep_for(1ms)) {
    if (mpi::calls().test(&request, &done, mpi::kIgnore) != mpi::kSuccess) return false;
    if (done) return true;
  }
  return false;
}

// If all ranks have the same error, rank 0 prints it. Otherwise the rank that failed first has the cause; the
// others only lost their peer. Ages are taken after a barrier, so the hosts' clocks need not agree.
int leave_together(int status, const std::string& text, const RankAndWorld& self, double age) {
  const Alarm alarm(kFinalize, [status] { _exit(status); });
  const auto own = base::as_line(nlohmann::json({age, status, text}));
  std::vector<nlohmann::json> all;
  for (const auto& line : all_gather_over(failure_comm(), own)) all.push_back(nlohmann::json::parse(line));
  const bool alike = std::ranges::all_of(all, [&](const auto& each) { return each[2] == all[0][2]; });
  const auto oldest =
      std::ranges::max_element(all, {}, [](const auto& each) { return each[0].template get<double>(); });
  const auto first = alike ? 0 : static_cast<int>(oldest - all.begin());
  if (self.rank == first) print(text, self, !alike);
  mpi::calls().finalize();
  return all[static_cast<size_t>(first)][1];
}

// Other ranks may still work. The rank that failed first on a host reports; of several hosts the lower ranks
// report first, and their abort ends the rest.
[[noreturn]] void abort_job(int status, const std::string& text, const RankAndWorld& self,
                            const ErrorReporter& reporter) {
  if (reporter.is_ours()) std::this_thread::sleep_for(100ms * std::min(self.rank, 20));
  if (!reporter.has_reported(kOtherReport)) print(text, self);
  mpi::calls().abort(mpi::Comm::world, status);
  _exit(status);
}

void report_once(const ErrorReporter& reporter, const std::function<void()>& report) {
  if (reporter.has_reported(kOtherReport)) return;
  report();
  if (reporter.is_ours() && reporter.is_shared()) std::this_thread::sleep_for(kStay);
}

void report_without_mpi(const std::string& text, const RankAndWorld& self, const ErrorReporter& reporter) {
  if (self.world == 1) return print(text, self);
  const bool other_hosts_report = self.rank > 0 && !self.one_host;
  if (reporter.is_ours() && other_hosts_report) std::this_thread::sleep_for(kRankZeroFirst);
  report_once(reporter, [&] { print(text, self); });
}

struct FirstFailure {
  Clock::time_point at = Clock::now();
  ErrorReporter reporter{current_environment()};
};

std::atomic<std::thread::id> leaving = {};  // the first thread that failed

const FirstFailure& first_failure() {
  static const FirstFailure first;
  std::thread::id none;
  leaving.compare_exchange_strong(none, std::this_thread::get_id());
  return first;
}

// What libraries do at exit may wait forever, for a GPU or a stream. The last registered handler runs first.
void bound_exit() {
  // NCCL's watchdog threads go on and read what libtorch's destructors free
  if (::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) skip_destructors_at_exit();
  ::on_exit([](int status, void*) { static_cast<void>(new Alarm(kExit, [status] { ::_exit(status); })); },
            nullptr);
}

}  // namespace

void skip_destructors_at_exit() {
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

bool another_thread_is_exiting() {
  const auto first = leaving.load();
  return first != std::thread::id() && first != std::this_thread::get_id();
}

int leave_failed(int status, const std::string& text) {
  const auto& [failed_at, reporter] = first_failure();
  bound_exit();
  std::signal(SIGTERM, SIG_DFL);  // a launcher may end us now
  if (const RankAndWorld self = rank_of_mpi(); self.world > 1) {
    if (!all_failed()) abort_job(status, text, self, reporter);
    try {
      return leave_together(status, text, self,
                            std::chrono::duration<double>(Clock::now() - failed_at).count());
    } catch (const Error&) {  // a rank died meanwhile
      print(text, self);
      return status;
    }
  }
  // with MPI this process is alone, or one of several to which MPI says "0 of 1"
  report_without_mpi(text, rank_by_environment(current_environment()), reporter);
  if (mpi_is_up()) mpi::calls().finalize();
  return status;
}

void print_once_per_host(const std::string& text) {
  report_once(ErrorReporter(current_environment()), [&] { log::error(text); });
}

}  // namespace lockstep::launch
