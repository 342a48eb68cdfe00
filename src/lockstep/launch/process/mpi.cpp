#include "lockstep/launch/process/mpi.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
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

// Messages through shared memory, or by TCP where /dev/shm is too small, and windows; a plug-in of the user's
// may make other windows. The rest is what a rank of mpirun takes of those that daemons and tools have, too.
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

// Those of hwloc that MPI would open to look for displays, accelerators and network cards, or to read XML by
// another's library.
constexpr Plugin kNotOfHwloc = {
    "HWLOC_PLUGINS_BLACKLIST",
    "hwloc_gl.so,hwloc_opencl.so,hwloc_pci.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so,"
    "hwloc_xml_libxml.so"};

// Somebody wants other ones; "^tcp" only leaves some out.
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

NamedPlugins::NamedPlugins(std::vector<std::pair<std::string, std::string>> plugins)
    : plugins_(std::move(plugins)) {
  for (const auto& [name, value] : plugins_) ::setenv(name.c_str(), value.c_str(), 0);
}

NamedPlugins::~NamedPlugins() {
  for (const auto& [name, value] : plugins_) ::unsetenv(name.c_str());
}

namespace fs = std::filesystem;
namespace {

constexpr int kHighest = 16;  // processes above this one

// the parts of an MPI that start ranks
constexpr std::array kStarters = {"mpirun",  "mpiexec", "orterun", "orted",
                                  "prterun", "prted",   "prte",    "hydra_"};

// where an MPI's module says that it lies
constexpr std::array kRoots = {"MPI_HOME",   "MPI_ROOT",  "OPAL_PREFIX",    "EBROOTOPENMPI", "I_MPI_ROOT",
                               "EBROOTIMPI", "MPICH_DIR", "CRAY_MPICH_DIR", "EBROOTMPICH"};

constexpr std::array kLibraryFolders = {"/lib", "/lib64", "/lib/release", "/lib/x86_64-linux-gnu",
                                        "/lib/aarch64-linux-gnu"};

bool is_starter(const std::string& program) {
  const auto name = fs::path(program).filename().string();
  return std::any_of(kStarters.begin(), kStarters.end(),
                     [&](const char* known) { return name.starts_with(known); });
}

bool is_hydras(const std::string& program) {
  return fs::path(program).filename().string().starts_with("hydra_");
}

void add_libraries_of(const std::string& root, std::vector<std::string>& folders) {
  for (const char* folder : kLibraryFolders) folders.push_back(root + folder);
}

// "1234 (some name) S 1 ...": the parent is the second word after the last bracket
pid_t parent_in_stat(pid_t process) {
  std::ifstream file(format("/proc/{}/stat", process));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto words = base::split(text.substr(std::min(text.size(), text.rfind(')') + 1)), ' ');
  return words.size() > 2 ? std::atoi(words[2].c_str()) : 0;
}

std::string word_of(const Launcher* row, const Environment& environment, const std::string& choice) {
  if (choice != "auto") return "--launcher " + choice;
  return format("{} is set", is_set(environment, row->rank) ? row->rank : row->world);
}

}  // namespace

std::vector<std::string> programs_above() {
  std::vector<std::string> programs;
  auto process = ::getppid();
  for (int i = 0; i < kHighest && process > 1; ++i, process = parent_in_stat(process)) {
    std::error_code unreadable;
    const auto program = fs::read_symlink(format("/proc/{}/exe", process), unreadable);
    if (!unreadable) programs.push_back(program.string());
  }
  return programs;
}

mpi::Wish wish_for_mpi(const Environment& environment, const std::string& choice,
                       const std::vector<std::string>& above) {
  mpi::Wish wish;
  const auto* row = find_launcher(environment, choice);
  wish.because = word_of(row, environment, choice);
  if (row) wish.families.assign(row->answers.begin(), row->answers.end());
  const auto starter = std::find_if(above.begin(), above.end(), is_starter);
  if (starter != above.end()) {
    wish.because += ", started by " + *starter;
    add_libraries_of(fs::path(*starter).parent_path().parent_path().string(), wish.folders);
    if (is_hydras(*starter)) wish.families = {mpi::Family::mpich, mpi::Family::standard};
  }
  for (const auto& folder : base::split(text_of(environment, "LD_LIBRARY_PATH"), ':')) {
    if (!folder.empty()) wish.folders.push_back(folder);
  }
  for (const char* root : kRoots) {
    if (is_set(environment, root)) add_libraries_of(text_of(environment, root), wish.folders);
  }
  return mpi::with_choice(wish, text_of(environment, "LOCKSTEP_MPI"));
}

namespace {

constexpr size_t kLargestMessage = size_t{1} << 30;  // MPI counts in int
constexpr const char* kExchange = "an exchange of small texts";
constexpr std::chrono::milliseconds kLongestFinalize{30'000};

mpi::Comm g_last_words = mpi::Comm::null;  // the session's that was made last: a process has one end

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

// A communicator of our own, whose errors are codes; whatever `of` does with errors stays as it is.
mpi::Comm duplicate(mpi::Comm of) {
  mpi::Comm copy = mpi::Comm::null;
  check_mpi(mpi::calls().comm_dup(of, &copy), "MPI_Comm_dup");
  check_mpi(mpi::calls().comm_set_errhandler(copy, mpi::Handler::errors_return), "MPI_Comm_set_errhandler");
  return copy;
}

[[noreturn]] void give_up_joining(std::chrono::milliseconds waited) {
  const auto error =
      Error(format("not every rank arrived in MPI_Init within {} s", waited.count() / 1000.0),
            format("process {}", getpid()),
            "look for a rank that failed to start, or set LOCKSTEP_JOIN_TIMEOUT to more seconds")
          .of(Code::not_joined);
  say_for_job(report_of(error));
  note_fault(error);
  _exit(kFailed);  // MPI_Abort needs an MPI that is up; the launcher sees this and ends the rest
}

[[noreturn]] void give_up_leaving(std::chrono::milliseconds waited) {
  log::error(
      format("MPI_Finalize did not end within {} s\n  where: process {}\n  to do: the work itself was done; "
             "look for a "
             "rank that was stopped or killed while it left",
             waited.count() / 1000.0, getpid()));
  _exit(kFailed);
}

// A barrier that ends: MPI's own holds all ranks while one of them is stopped.
void wait_for_all(mpi::Comm comm, std::chrono::milliseconds timeout, const char* where) {
  if (timeout.count() <= 0) return;
  mpi::Request request = mpi::Request::null;
  check_mpi(mpi::calls().ibarrier(comm, &request), "MPI_Ibarrier");
  base::AwakeTime awake;
  for (int done = 0;;) {
    check_mpi(mpi::calls().test(&request, &done, mpi::kIgnore), "MPI_Test");
    if (done) return;
    if (awake.passed() > timeout) {
      throw Error(format("not every rank came to {} within {} s", where, timeout.count() / 1000.0),
                  "MPI, process " + std::to_string(getpid()),
                  "look for a rank that was stopped, or that still works");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::vector<int> starts_of(const std::vector<int>& counts) {
  std::vector<int> starts(counts.size(), 0);
  if (!counts.empty()) std::partial_sum(counts.begin(), counts.end() - 1, starts.begin() + 1);
  return starts;
}

std::vector<std::string> split(const std::string& all, const std::vector<int>& counts,
                               const std::vector<int>& starts) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < counts.size(); ++i) {
    texts.push_back(all.substr(static_cast<size_t>(starts[i]), static_cast<size_t>(counts[i])));
  }
  return texts;
}

void refuse_too_many(unsigned long long bytes, const char* where) {
  if (bytes > kLargestMessage)
    throw Error(format("{} bytes are too many to gather at once", bytes), where,
                format("gather at most {} bytes at once, all ranks together", kLargestMessage));
}

// lengths first, then all texts in one message
std::vector<std::string> gather_over(mpi::Comm comm, const std::string& text) {
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
  refuse_too_many(total, "all_gather");
  const std::vector<int> counts(sizes.begin(), sizes.end());
  const std::vector<int> starts = starts_of(counts);
  std::string all(total, '\0');
  check_mpi(mpi::calls().allgatherv(text.data(), counts[static_cast<size_t>(rank)], mpi::Type::character,
                                    all.data(), counts.data(), starts.data(), mpi::Type::character, comm),
            "MPI_Allgatherv");
  return split(all, counts, starts);
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
  throw Error(mpi_failure(code, call), call, "another rank may have died: its own message comes first");
}

bool mpi_is_up() {
  return mpi::loaded() && is_initialized() && !is_finalized();
}

mpi::Comm last_words_comm() {
  return g_last_words;
}

MpiSession::MpiSession(std::chrono::milliseconds join_timeout) : patience_(join_timeout) {
  if (is_finalized()) {
    throw Error("MPI is already finalised in this process", "MPI_Init_thread", "make one Runtime a process");
  }
  join(join_timeout);
  learn_facts();
}

MpiSession::~MpiSession() = default;

void MpiSession::join(std::chrono::milliseconds timeout) {
  const Alarm alarm(timeout, [timeout] { give_up_joining(timeout); });
  owner_ = !is_initialized();
  int provided = mpi::kThreadSingle;  // whoever calls MPI from threads asks MPI_Query_thread
  if (owner_)
    check_mpi(mpi::calls().init_thread(nullptr, nullptr, mpi::kThreadMultiple, &provided), "MPI_Init_thread");
  world_ = duplicate(mpi::Comm::world);
  last_words_before_ = std::exchange(g_last_words, duplicate(world_));
  check_mpi(mpi::calls().comm_rank(world_, &facts_.rank), "MPI_Comm_rank");
  check_mpi(mpi::calls().comm_size(world_, &facts_.world), "MPI_Comm_size");
  check_mpi(mpi::calls().comm_split_type(world_, mpi::kShared, facts_.rank, mpi::Info::null, &node_),
            "MPI_Comm_split_type");
}

// A node is known by its first world rank; nodes are numbered in that order.
void MpiSession::learn_facts() {
  facts_.library = mpi::loaded()->version;
  check_mpi(mpi::calls().comm_rank(node_, &facts_.local_rank), "MPI_Comm_rank");
  check_mpi(mpi::calls().comm_size(node_, &facts_.local_world), "MPI_Comm_size");
  int first = facts_.rank;
  check_mpi(mpi::calls().bcast(&first, 1, mpi::Type::int32, 0, node_), "MPI_Bcast");
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
  wait_for_all(world_, patience_, kExchange);
  std::string text = own;
  unsigned long long size = text.size();
  check_mpi(mpi::calls().bcast(&size, 1, mpi::Type::unsigned_long_long, 0, world_), "MPI_Bcast");
  text.resize(size);
  for (size_t at = 0; at < text.size(); at += kLargestMessage) {
    const int part = static_cast<int>(std::min(kLargestMessage, text.size() - at));
    check_mpi(mpi::calls().bcast(text.data() + at, part, mpi::Type::character, 0, world_), "MPI_Bcast");
  }
  return text;
}

std::vector<std::string> MpiSession::all_gather(const std::string& text) {
  wait_for_all(world_, patience_, kExchange);
  return gather_over(world_, text);
}

std::vector<std::string> MpiSession::gather(const std::string& text) {
  wait_for_all(world_, patience_, kExchange);
  unsigned long long total = text.size();
  // summed on every rank, so that all refuse alike
  check_mpi(
      mpi::calls().allreduce(mpi::kInPlace, &total, 1, mpi::Type::unsigned_long_long, mpi::Op::sum, world_),
      "MPI_Allreduce");
  refuse_too_many(total, "gather");
  const bool first = facts_.rank == 0;
  const int own = static_cast<int>(text.size());
  std::vector<int> counts(first ? static_cast<size_t>(facts_.world) : 0);
  check_mpi(mpi::calls().gather(&own, 1, mpi::Type::int32, counts.data(), 1, mpi::Type::int32, 0, world_),
            "MPI_Gather");
  const std::vector<int> starts = starts_of(counts);
  std::string all(first ? total : 0, '\0');
  check_mpi(mpi::calls().gatherv(text.data(), own, mpi::Type::character, all.data(), counts.data(),
                                 starts.data(), mpi::Type::character, 0, world_),
            "MPI_Gatherv");
  return split(all, counts, starts);
}

std::vector<std::string> MpiSession::all_gather_on_node(const std::string& text) const {
  wait_for_all(node_, patience_, kExchange);
  return gather_over(node_, text);
}

void MpiSession::barrier() const {
  check_mpi(mpi::calls().barrier(world_), "MPI_Barrier");
}

void MpiSession::finish(std::chrono::milliseconds timeout) {
  timeout.count() > 0 ? wait_for_all(world_, timeout, "the end of the job") : barrier();
  // all are at the end: longer than this and one was stopped or has died here
  const auto patience = std::min(timeout, kLongestFinalize);
  const Alarm alarm(patience, [patience] { give_up_leaving(patience); });
  for (mpi::Comm* comm : {&node_, &g_last_words, &world_})
    check_mpi(mpi::calls().comm_free(comm), "MPI_Comm_free");
  g_last_words = last_words_before_;
  if (owner_) check_mpi(mpi::calls().finalize(), "MPI_Finalize");
}

}  // namespace lockstep::launch
