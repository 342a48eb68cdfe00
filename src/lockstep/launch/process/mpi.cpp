#include "lockstep/launch/process/mpi.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/launch/variables.h"
#include "lockstep/mpi/library.h"

namespace lockstep::launch {
namespace {

struct Plugin {
  const char* variable;
  const char* names;
};

// Messages through shared memory, or by TCP where /dev/shm is too small; windows; and what a rank of mpirun
// uses of the plug-ins that daemons and tools have, too.
constexpr std::array<Plugin, 9> kMpi = {{{"OMPI_MCA_pml", "ob1"},
                                         {"OMPI_MCA_btl", "self,vader,tcp"},
                                         {"OMPI_MCA_osc", "sm,rdma"},
                                         {"OMPI_MCA_coll", "self,basic,libnbc,inter,tuned"},
                                         {"OMPI_MCA_state", "app"},
                                         {"OMPI_MCA_errmgr", "default_app"},
                                         {"OMPI_MCA_reachable", "weighted"},
                                         {"OMPI_MCA_shmem", "mmap"},
                                         {"OMPI_MCA_schizo", "ompi,orte"}}};
constexpr const char* kMessages = "OMPI_MCA_mtl";

// hwloc's plug-ins that MPI would open to look for displays, accelerators and network cards, or to read XML.
constexpr Plugin kNotOfHwloc = {
    "HWLOC_PLUGINS_BLACKLIST",
    "hwloc_gl.so,hwloc_opencl.so,hwloc_pci.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so,"
    "hwloc_xml_libxml.so"};

// Whether the user chose plug-ins; "^tcp" only excludes some.
bool is_chosen(const Environment& environment, const char* variable) {
  return is_set(environment, variable) && !text_of(environment, variable).starts_with("^");
}

bool is_one_node(const Environment& environment) {
  const auto all = text_of(environment, "OMPI_COMM_WORLD_SIZE");
  return !all.empty() && all == text_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> plugins_of_one_node(const Environment& environment,
                                                                     const std::string& library) {
  const bool chosen =
      is_chosen(environment, kMessages) || std::ranges::any_of(kMpi, [&](const Plugin& plugin) {
        return is_chosen(environment, plugin.variable);
      });
  if (chosen || !is_one_node(environment) || !library.starts_with("Open MPI v4.")) return {};
  std::vector<std::pair<std::string, std::string>> named;
  const auto name = [&](const Plugin& plugin) {
    if (!is_set(environment, plugin.variable)) named.emplace_back(plugin.variable, plugin.names);
  };
  std::ranges::for_each(kMpi, name);
  name(kNotOfHwloc);
  return named;
}

ScopedPluginVariables::ScopedPluginVariables(std::vector<std::pair<std::string, std::string>> plugins)
    : plugins_(std::move(plugins)) {
  for (const auto& [name, value] : plugins_) ::setenv(name.c_str(), value.c_str(), 0);
}

ScopedPluginVariables::~ScopedPluginVariables() {
  for (const auto& [name, value] : plugins_) ::unsetenv(name.c_str());
}

namespace fs = std::filesystem;
namespace {

constexpr int kHighest = 16;  // processes above this one

// programs of MPI that start ranks
constexpr std::array kStarters = {"mpirun",  "mpiexec", "orterun", "orted",
                                  "prterun", "prted",   "prte",    "hydra_"};

// set by the environment modules of an MPI
constexpr std::array kRoots = {"MPI_HOME",   "MPI_ROOT",  "OPAL_PREFIX",    "EBROOTOPENMPI", "I_MPI_ROOT",
                               "EBROOTIMPI", "MPICH_DIR", "CRAY_MPICH_DIR", "EBROOTMPICH"};

constexpr std::array kLibraryFolders = {"/lib", "/lib64", "/lib/release", "/lib/x86_64-linux-gnu",
                                        "/lib/aarch64-linux-gnu"};

void add_libraries_of(const std::string& root, std::vector<std::string>& folders) {
  for (const char* folder : kLibraryFolders) folders.push_back(root + folder);
}

std::string reason_for_families(const Launcher* row, const Environment& environment,
                                const std::string& choice) {
  if (choice != "auto") return "--launcher " + choice;
  return format("{} is set", is_set(environment, row->rank) ? row->rank : row->world);
}

}  // namespace

pid_t parent_of(pid_t process) {
  return static_cast<pid_t>(
      base::number_in(base::field(format("/proc/{}/status", process), "PPid:")).value_or(0));
}

bool is_mpi_starter(const std::string& program) {
  const auto name = fs::path(program).filename().string();
  return std::ranges::any_of(kStarters, [&](const char* known) { return name.starts_with(known); });
}

std::vector<std::string> programs_above() {
  std::vector<std::string> programs;
  auto process = ::getppid();
  for (int i = 0; i < kHighest && process > 1; ++i, process = parent_of(process)) {
    std::error_code unreadable;
    const auto program = fs::read_symlink(format("/proc/{}/exe", process), unreadable);
    if (!unreadable) programs.push_back(program.string());
  }
  return programs;
}

mpi::LibraryRequest library_request(const Environment& environment, const std::string& choice,
                                    const std::vector<std::string>& above) {
  mpi::LibraryRequest request;
  const auto* row = find_launcher(environment, choice);
  request.because = reason_for_families(row, environment, choice);
  if (row) request.families.assign(row->answers.begin(), row->answers.end());
  const auto starter = std::ranges::find_if(above, is_mpi_starter);
  if (starter != above.end()) {
    request.because += ", started by " + *starter;
    add_libraries_of(fs::path(*starter).parent_path().parent_path().string(), request.folders);
    if (fs::path(*starter).filename().string().starts_with("hydra_"))
      request.families = {mpi::Family::mpich, mpi::Family::standard};
  }
  for (const auto& folder : base::split(text_of(environment, "LD_LIBRARY_PATH"), ':'))
    if (!folder.empty()) request.folders.push_back(folder);
  for (const char* root : kRoots)
    if (is_set(environment, root)) add_libraries_of(text_of(environment, root), request.folders);
  return mpi::apply_choice(request, text_of(environment, "LOCKSTEP_MPI"));
}

namespace {

constexpr size_t kLargestMessage = size_t{1} << 30;  // MPI counts in int
constexpr const char *kExchange = "data that the ranks share", *kReachExchange = "respond";
constexpr std::chrono::milliseconds kLongestFinalize{30'000};

mpi::Comm g_failure_comm = mpi::Comm::null;  // of the newest session

bool is_initialized() {
  int flag = 0;
  mpi::calls().initialized(&flag);
  return flag != 0;
}

bool is_finalized() {
  int flag = 0;
  mpi::calls().finalized(&flag);
  return flag != 0;
}

// A private communicator that returns errors as codes; the error handler of `of` stays as it is.
mpi::Comm duplicate(mpi::Comm of) {
  mpi::Comm copy = mpi::Comm::null;
  check_mpi(mpi::calls().comm_dup(of, &copy), "MPI_Comm_dup");
  check_mpi(mpi::calls().comm_set_errhandler(copy, mpi::Handler::errors_return), "MPI_Comm_set_errhandler");
  return copy;
}

[[noreturn]] void give_up_joining(std::chrono::milliseconds waited) {
  const auto error =
      Error(format("not every rank called MPI_Init within {}", base::in_seconds(waited)),
            format("process {}", getpid()),
            "look for a rank that failed to start, or set LOCKSTEP_JOIN_TIMEOUT to more seconds")
          .of(Code::not_joined);
  print_once_per_host(report_of(error));
  note_fault(error);
  _exit(kFailed);  // MPI_Abort needs an MPI that is up; the launcher sees this and ends the rest
}

[[noreturn]] void give_up_leaving(std::chrono::milliseconds waited) {
  log::error(
      format("MPI_Finalize did not end within {}\n  --> process {}\n  hint: look for a rank that was stopped "
             "or killed while it exited; the run itself had finished",
             base::in_seconds(waited), getpid()));
  _exit(kFailed);
}

// The roll call: each rank sends an empty message to rank 0, which answers with the missing ranks. The
// communicator is the session's own, so a user's messages cannot interfere.
constexpr int kHello = 1, kAnswer = 2;
constexpr auto kBetweenTests = std::chrono::microseconds(200);
// the others wait a little longer than rank 0, which waits for the full timeout before it answers
constexpr auto kAnswerGrace = std::chrono::seconds(2);

constexpr size_t kMostMissing = 32;
using Answer = std::array<int, 1 + kMostMissing>;  // how many ranks are missing, and the first of them

bool is_done(mpi::Request& request) {
  int done = 0;
  check_mpi(mpi::calls().test(&request, &done, mpi::kIgnore), "MPI_Test");
  return done != 0;
}

// Waits for the requests, and drops those that are not done in time. Returns their indices.
std::vector<size_t> cancel_late(std::vector<mpi::Request>& requests, std::chrono::milliseconds timeout) {
  std::vector<size_t> open(requests.size());
  std::iota(open.begin(), open.end(), size_t{0});
  for (base::AwakeTime awake; !open.empty() && awake.passed() <= timeout;) {
    std::erase_if(open, [&](size_t i) { return is_done(requests[i]); });
    if (!open.empty()) std::this_thread::sleep_for(kBetweenTests);
  }
  for (const size_t i : open) {
    mpi::calls().cancel(&requests[i]);
    mpi::calls().request_free(&requests[i]);
  }
  return open;
}

Answer answer_on_rank_zero(mpi::Comm comm, int world, std::chrono::milliseconds timeout) {
  std::vector<mpi::Request> hellos(static_cast<size_t>(world) - 1, mpi::Request::null), answers;
  for (int rank = 1; rank < world; ++rank) {
    check_mpi(mpi::calls().irecv(nullptr, 0, mpi::Type::int32, rank, kHello, comm,
                                 &hellos[static_cast<size_t>(rank) - 1]),
              "MPI_Irecv");
  }
  auto answer = std::make_unique<Answer>();
  std::set<int> missing;
  for (const size_t place : cancel_late(hellos, timeout)) missing.insert(static_cast<int>(place) + 1);
  answer->front() = static_cast<int>(missing.size());
  std::copy_n(missing.begin(), std::min(missing.size(), kMostMissing), answer->begin() + 1);
  for (int rank = 1; rank < world; ++rank) {
    if (missing.contains(rank)) continue;  // its next call would receive this answer
    answers.push_back(mpi::Request::null);
    check_mpi(mpi::calls().isend(answer->data(), static_cast<int>(answer->size()), mpi::Type::int32, rank,
                                 kAnswer, comm, &answers.back()),
              "MPI_Isend");
  }
  const bool is_sent = cancel_late(answers, kAnswerGrace).empty();
  return is_sent ? *answer : *answer.release();  // MPI may still read it
}

Answer answer_on_other_ranks(mpi::Comm comm, std::chrono::milliseconds timeout) {
  auto answer = std::make_unique<Answer>();
  std::vector<mpi::Request> request(1, mpi::Request::null);
  mpi::Request hello = mpi::Request::null;
  check_mpi(mpi::calls().irecv(answer->data(), static_cast<int>(answer->size()), mpi::Type::int32, 0, kAnswer,
                               comm, &request[0]),
            "MPI_Irecv");
  check_mpi(mpi::calls().isend(nullptr, 0, mpi::Type::int32, 0, kHello, comm, &hello), "MPI_Isend");
  const bool came = cancel_late(request, timeout + kAnswerGrace).empty();
  check_mpi(mpi::calls().request_free(&hello), "MPI_Request_free");
  if (came) return *answer;
  answer.release();  // MPI may still write it
  return {1, 0};     // one rank, rank 0
}

void refuse_too_many(unsigned long long bytes) {
  if (bytes > kLargestMessage)
    throw Error(format("{} bytes are too many for one exchange", bytes), kExchange,
                format("exchange at most {} bytes at once, all ranks together", kLargestMessage));
}

}  // namespace

std::string mpi_failure(int code, const char* call) {
  std::array<char, mpi::kMaxErrorString> text{};
  int length = 0;
  mpi::calls().error_string(code, text.data(), &length);
  return format("{} failed: {}", call, std::string(text.data(), static_cast<size_t>(length)));
}

void check_mpi(int code, const char* call) {
  if (code == mpi::kSuccess) return;
  throw Error(mpi_failure(code, call), call,
              "look for an earlier message of another rank, which may have died");
}

// Lengths first, then all texts in one message.
std::vector<std::string> all_gather_over(mpi::Comm comm, const std::string& text) {
  int rank = 0, size = 0;
  check_mpi(mpi::calls().comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(mpi::calls().comm_size(comm, &size), "MPI_Comm_size");
  const auto world = static_cast<size_t>(size);
  unsigned long long own = text.size();
  std::vector<unsigned long long> sizes(world);
  check_mpi(mpi::calls().allgather(&own, 1, mpi::Type::unsigned_long_long, sizes.data(), 1,
                                   mpi::Type::unsigned_long_long, comm),
            "MPI_Allgather");
  const auto total = std::accumulate(sizes.begin(), sizes.end(), 0ULL);
  refuse_too_many(total);
  const std::vector<int> counts(sizes.begin(), sizes.end());
  std::vector<int> starts(world, 0);
  std::partial_sum(counts.begin(), counts.end() - 1, starts.begin() + 1);
  std::string all(total, '\0');
  check_mpi(mpi::calls().allgatherv(text.data(), counts[static_cast<size_t>(rank)], mpi::Type::character,
                                    all.data(), counts.data(), starts.data(), mpi::Type::character, comm),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (size_t i = 0; i < world; ++i)
    texts.push_back(all.substr(static_cast<size_t>(starts[i]), static_cast<size_t>(counts[i])));
  return texts;
}

bool mpi_is_up() {
  return mpi::loaded() && is_initialized() && !is_finalized();
}

mpi::Comm failure_comm() {
  return g_failure_comm;
}

MpiSession::MpiSession(std::chrono::milliseconds join_timeout) : patience_(join_timeout) {
  if (is_finalized()) {
    throw Error("MPI is already finalized in this process", "MPI_Init_thread",
                "create only one Runtime in a process");
  }
  join(join_timeout);
}

MpiSession::~MpiSession() = default;

void MpiSession::join(std::chrono::milliseconds timeout) {
  const Alarm alarm(timeout, [timeout] { give_up_joining(timeout); });
  owner_ = !is_initialized();
  int provided = mpi::kThreadSingle;  // whoever calls MPI from threads asks MPI_Query_thread
  if (owner_)
    check_mpi(mpi::calls().init_thread(nullptr, nullptr, mpi::kThreadMultiple, &provided), "MPI_Init_thread");
  world_ = duplicate(mpi::Comm::world);
  previous_failure_comm_ = std::exchange(g_failure_comm, duplicate(world_));
  check_mpi(mpi::calls().comm_rank(world_, &facts_.rank), "MPI_Comm_rank");
  check_mpi(mpi::calls().comm_size(world_, &facts_.world), "MPI_Comm_size");
  facts_.library = mpi::loaded()->version;
  read_layout();
}

// A node is known by its first world rank; nodes are numbered in that order.
void MpiSession::read_layout() {
  mpi::Comm node = mpi::Comm::null;  // the ranks that share this node's memory
  check_mpi(mpi::calls().comm_split_type(world_, mpi::kShared, facts_.rank, mpi::Info::null, &node),
            "MPI_Comm_split_type");
  check_mpi(mpi::calls().comm_rank(node, &facts_.local_rank), "MPI_Comm_rank");
  check_mpi(mpi::calls().comm_size(node, &facts_.local_world), "MPI_Comm_size");
  int first = facts_.rank;
  check_mpi(mpi::calls().bcast(&first, 1, mpi::Type::int32, 0, node), "MPI_Bcast");
  check_mpi(mpi::calls().comm_free(&node), "MPI_Comm_free");
  std::vector<int> firsts(static_cast<size_t>(facts_.world));
  check_mpi(mpi::calls().allgather(&first, 1, mpi::Type::int32, firsts.data(), 1, mpi::Type::int32, world_),
            "MPI_Allgather");
  std::sort(firsts.begin(), firsts.end());
  firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
  facts_.nodes = static_cast<int>(firsts.size());
  facts_.node_rank = static_cast<int>(std::lower_bound(firsts.begin(), firsts.end(), first) - firsts.begin());
}

void MpiSession::set_timeout(std::chrono::milliseconds timeout) {
  const bool for_ever = patience_.count() <= 0 || timeout.count() <= 0;
  patience_ = for_ever ? std::chrono::milliseconds(0) : std::max(patience_, timeout);
}

std::string MpiSession::broadcast(const std::string& own) {
  call_roll(patience_, kReachExchange);
  std::string text = own;
  unsigned long long size = text.size();
  check_mpi(mpi::calls().bcast(&size, 1, mpi::Type::unsigned_long_long, 0, world_), "MPI_Bcast");
  refuse_too_many(size);
  text.resize(size);
  check_mpi(mpi::calls().bcast(text.data(), static_cast<int>(size), mpi::Type::character, 0, world_),
            "MPI_Bcast");
  return text;
}

std::vector<std::string> MpiSession::all_gather(const std::string& text) {
  call_roll(patience_, kReachExchange);
  return all_gather_over(world_, text);
}

std::vector<std::string> MpiSession::gather(const std::string& text) {
  auto texts = all_gather(text);
  return facts_.rank == 0 ? texts : std::vector<std::string>();
}

void MpiSession::call_roll(std::chrono::milliseconds timeout, const char* what) const {
  if (timeout.count() <= 0 || facts_.world == 1) return;
  const auto answer = facts_.rank == 0 ? answer_on_rank_zero(world_, facts_.world, timeout)
                                       : answer_on_other_ranks(world_, timeout);
  const auto missing = static_cast<size_t>(answer.front());
  if (missing == 0) return;
  std::vector<int> ranks(answer.begin() + 1, answer.end());
  ranks.resize(std::min(missing, kMostMissing));
  throw Error(
      format("{} did not {} within {}", base::rank_list(ranks, missing), what, base::in_seconds(timeout)),
      format("rank {} of {} on host {}", facts_.rank, facts_.world, read_host_facts({}).host),
      "look in the log for an earlier error of that rank, or for a rank that is stopped; if it is only slow, "
      "raise launch.join_timeout, or launch.timeout at the end of a job")
      .of(Code::not_joined, ranks);
}

void MpiSession::barrier() const {
  check_mpi(mpi::calls().barrier(world_), "MPI_Barrier");
}

void MpiSession::finish(std::chrono::milliseconds timeout) {
  timeout.count() > 0 ? call_roll(timeout, "reach the end of the job") : barrier();
  // all ranks have arrived: a longer wait means that one was stopped or has died
  const auto patience = std::min(timeout, kLongestFinalize);
  const Alarm alarm(patience, [patience] { give_up_leaving(patience); });
  for (mpi::Comm* comm : {&g_failure_comm, &world_}) check_mpi(mpi::calls().comm_free(comm), "MPI_Comm_free");
  g_failure_comm = previous_failure_comm_;
  if (owner_) check_mpi(mpi::calls().finalize(), "MPI_Finalize");
}

}  // namespace lockstep::launch
