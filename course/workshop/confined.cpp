// A learner's programs run: each a child in a session of its own, watched, and what they leave in /dev/shm.
#include "course/workshop/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

class Child {
 public:
  Child(const ConfinedCommand& command, const ProgramLimits& limits);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool is_running() const { return pid_ > 0; }
  bool has_failed() const { return !is_running() && !ending_.is_well(); }
  /// The descriptors on which it may say something.
  void add_to(std::vector<pollfd>& waited) const;
  /// Takes what is there to read, and notices its end.
  void look();
  /// Ends it, for this reason.
  void stop(Why why);
  Ending take() { return std::move(ending_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pipe {
    Pipe();
    base::Descriptor out, in;
  };
  struct Work {
    Clock::time_point at = Clock::now();
    double wanted = 0;  // seconds of a core
  };

  [[noreturn]] void become(const std::vector<char*>& argv, const std::vector<char*>& environment,
                           const std::string& folder, pid_t parent) const;
  void read(base::Descriptor& from, std::string& into) const;
  void read_all();
  void notice_end();
  void end();
  Work work_now() const;
  void note_work();
  bool is_busy() const;

  const ProgramLimits& limits_;
  const unsigned long tasks_;
  Pipe said_, facts_;
  pid_t pid_ = 0;
  Ending ending_;
  Work before_, lately_;  // a second or more apart
  Clock::time_point began_ = Clock::now();
};

}  // namespace

namespace {

using base::Descriptor;

constexpr int kFactsDescriptor = 3;
constexpr int kMoreTasks = 512;     // processes and threads that a program may add to those of the machine
constexpr int kCpuFactor = 4;       // of its time, on several threads
constexpr double kBusyShare = 0.3;  // of the time; who waits wants a hundredth

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

void limit(int what, rlim_t most) {
  const auto resource = static_cast<decltype(RLIMIT_CPU)>(what);
  rlimit bound{};
  if (::getrlimit(resource, &bound) == 0) most = std::min(most, bound.rlim_max);
  bound = {most, most};
  ::setrlimit(resource, &bound);
}

// The kernel counts all tasks of the user against the limit; the machine's are no fewer.
rlim_t most_tasks() {
  double load = 0;
  int running = 0, all = 0;
  char slash = 0;
  std::ifstream file("/proc/loadavg");
  file >> load >> load >> load >> running >> slash >> all;
  return static_cast<rlim_t>(all) + kMoreTasks;
}

// a descriptor that lies where another belongs would be closed by it
int above_all(int number) {
  return ::fcntl(number, F_DUPFD_CLOEXEC, kFactsDescriptor + 1);
}

// what whoever started the checker left open, or ignores, is not the program's
void forget_the_checkers() {
#ifdef SYS_close_range
  constexpr unsigned kOnExec = 4;
  ::syscall(SYS_close_range, kFactsDescriptor + 1, ~0U, kOnExec);
#endif
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

Child::Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("no pipe to a program can be made", "", "close some programs, then try again");
  out = Descriptor(ends[0]);
  in = Descriptor(ends[1]);
}

Child::Child(const ConfinedCommand& command, const ProgramLimits& limits)
    : limits_(limits), tasks_(most_tasks()) {
  auto words = command.argv;
  const auto descriptor = std::to_string(kFactsDescriptor);
  std::vector<std::string> settings = {"LOCKSTEP_FACTS_FD=" + descriptor, "LOCKSTEP_ERRORS=" + descriptor};
  for (const auto& [name, value] : command.environment) settings.push_back(name + "=" + value);
  const auto argv = pointers(words), environment = pointers(settings);
  const auto parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(argv, environment, command.folder, parent);
  said_.in.close();
  facts_.in.close();
  if (pid_ < 0) ending_ = {.why = Why::not_started, .status = errno};
}

Child::~Child() {
  end();
}

void Child::become(const std::vector<char*>& argv, const std::vector<char*>& environment,
                   const std::string& folder, pid_t parent) const {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it has left already, and nobody would end us
  const int said = above_all(said_.in.number()), facts = above_all(facts_.in.number());
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(said, STDOUT_FILENO);
  ::dup2(said, STDERR_FILENO);
  ::dup2(facts, kFactsDescriptor);
  forget_the_checkers();
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_DATA, limits_.memory);
  limit(RLIMIT_FSIZE, limits_.file);
  limit(RLIMIT_NPROC, tasks_);
  limit(RLIMIT_CPU, static_cast<rlim_t>(limits_.time.count() / 1000 * kCpuFactor + 10));
  if (::chdir(folder.c_str()) == 0) ::execvpe(argv[0], argv.data(), environment.data());
  ::dprintf(STDERR_FILENO, "%s cannot be started: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

void Child::add_to(std::vector<pollfd>& waited) const {
  if (!is_running()) return;
  for (const auto* pipe : {&said_, &facts_}) {
    if (pipe->out) waited.push_back({pipe->out.number(), POLLIN, 0});
  }
}

void Child::look() {
  read_all();
  if (!is_running()) return;
  notice_end();
  note_work();
  if (ending_.printed.size() >= limits_.output || ending_.facts.size() >= limits_.output)
    stop(Why::too_much_output);
}

void Child::stop(Why why) {
  if (!is_running()) return;
  ending_.was_busy = is_busy();
  end();
  ending_.why = why;
  read_all();
}

void Child::read(Descriptor& from, std::string& into) const {
  std::array<char, 65536> part;
  while (from && into.size() < limits_.output) {
    pollfd ready{from.number(), POLLIN, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    const auto count = ::read(from.number(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      from.close();
      return;
    }
    into.append(part.data(), std::min(limits_.output - into.size(), static_cast<size_t>(count)));
  }
}

void Child::read_all() {
  read(said_.out, ending_.printed);
  read(facts_.out, ending_.facts);
}

void Child::notice_end() {
  int status = 0;
  siginfo_t ended{};  // its number may be another process's once it has been waited for
  if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0)
    return;
  ::kill(-pid_, SIGKILL);  // whatever it left behind in its session's first group
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  ending_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  ending_.why = WIFSIGNALED(status) ? Why::signal : Why::left;
  ending_.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  read_all();
}

void Child::end() {
  if (!is_running()) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  pid_ = 0;
  ending_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
}

// of all its threads, from the kernel's account: nanoseconds on a core, and those in which it waited for one
// on a busy machine
Child::Work Child::work_now() const {
  std::error_code none;
  double wanted = 0;
  for (fs::directory_iterator thread("/proc/" + std::to_string(pid_) + "/task", none), end;
       !none && thread != end; thread.increment(none)) {
    std::ifstream file(thread->path() / "schedstat");
    double on_a_core = 0, for_a_core = 0;
    file >> on_a_core >> for_a_core;
    wanted += (on_a_core + for_a_core) / 1e9;
  }
  return {.wanted = wanted};
}

void Child::note_work() {
  if (!is_running() || Clock::now() - lately_.at < std::chrono::seconds(1)) return;
  before_ = lately_;
  lately_ = work_now();
}

bool Child::is_busy() const {
  const auto now = work_now();
  const auto seconds = std::chrono::duration<double>(now.at - before_.at).count();
  return now.wanted - before_.wanted > kBusyShare * seconds;
}

namespace {

class Footprint {
 public:
  /// Of what comes to be below this process, but for these children of it.
  explicit Footprint(std::set<pid_t> others);
  /// Removes what was seen to be theirs: files in /dev/shm, and System V's segments.
  ~Footprint();
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;

  /// What says at once that somebody put something into /dev/shm: one may do so and end a moment later.
  void add_to(std::vector<pollfd>& waited) const;
  /// Looks, though not more often than is of use; bytes, as seen last.
  size_t look();

 private:
  bool hears_of_a_file() const;
  void note_files(const std::set<pid_t>& processes);
  size_t bytes_of_files() const;

  std::set<pid_t> others_;
  base::Descriptor news_;
  std::map<std::string, ino_t> before_;  // of ours in /dev/shm
  std::map<std::string, ino_t> noted_;   // opened or mapped by one of these processes
  std::chrono::steady_clock::time_point looked_{};
  std::set<pid_t> seen_;
  size_t bytes_ = 0;
};

}  // namespace

namespace {

constexpr std::chrono::milliseconds kBetweenGlances{40};
constexpr const char* kShared = "/dev/shm/";

// of the user's own: nobody else's is touched
std::map<std::string, ino_t> own_shared_files() {
  std::map<std::string, ino_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kShared), ::closedir);
  while (const auto* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    struct stat facts {};
    if (name == "." || name == ".." || ::lstat((kShared + name).c_str(), &facts) != 0) continue;
    if (facts.st_uid == ::geteuid()) found[name] = facts.st_ino;
  }
  return found;
}

// "/dev/shm/name/file" -> name
std::string shared_name(const std::string& path) {
  const std::string folder = kShared;
  if (!path.starts_with(folder)) return {};
  return path.substr(folder.size(), path.find('/', folder.size()) - folder.size());
}

std::set<std::string> opened_by(pid_t process) {
  std::set<std::string> names;
  const auto root = fs::path("/proc") / std::to_string(process);
  std::error_code gone;
  for (fs::directory_iterator link(root / "fd", gone), end; !gone && link != end; link.increment(gone)) {
    std::error_code none;
    names.insert(shared_name(fs::read_symlink(link->path(), none)));
  }
  std::ifstream maps(root / "maps");
  for (std::string line; std::getline(maps, line);) {
    if (const auto at = line.find(kShared); at != std::string::npos)
      names.insert(shared_name(line.substr(at)));
  }
  return names;
}

struct Memory {
  size_t own = 0, shared = 0;
};

// in kB, behind these words
Memory memory_of(pid_t process) {
  Memory memory;
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    size_t kilobytes = 0;
    if (!(words >> name >> kilobytes)) continue;
    if (name == "RssAnon:") memory.own = kilobytes << 10;
    if (name == "RssShmem:") memory.shared = kilobytes << 10;
  }
  return memory;
}

size_t bytes_below(const fs::path& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return 0;
  auto bytes = static_cast<size_t>(facts.st_blocks) * 512;
  std::error_code gone;
  if (S_ISDIR(facts.st_mode)) {
    for (fs::directory_iterator entry(path, gone), end; !gone && entry != end; entry.increment(gone))
      bytes += bytes_below(entry->path());
  }
  return bytes;
}

// "key shmid perms size cpid ...": the kernel's list of System V's segments, with who made them
void remove_segments_of(const std::set<pid_t>& makers) {
  std::ifstream list("/proc/sysvipc/shm");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    long key = 0, segment = 0, permissions = 0, size = 0, maker = 0;
    if (!(words >> key >> segment >> permissions >> size >> maker)) continue;
    if (makers.count(static_cast<pid_t>(maker)) > 0) ::shmctl(static_cast<int>(segment), IPC_RMID, nullptr);
  }
}

}  // namespace

// none where the kernel has no more watches: then it is looked for as often as before
Footprint::Footprint(std::set<pid_t> others)
    : others_(std::move(others)),
      news_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      before_(own_shared_files()) {
  if (news_ && ::inotify_add_watch(news_.number(), kShared, IN_CREATE | IN_MOVED_TO) < 0) news_.close();
}

void Footprint::add_to(std::vector<pollfd>& waited) const {
  if (news_) waited.push_back({news_.number(), POLLIN, 0});
}

bool Footprint::hears_of_a_file() const {
  std::array<char, 4096> events;
  bool any = false;
  while (news_ && ::read(news_.number(), events.data(), events.size()) > 0) any = true;
  return any;
}

Footprint::~Footprint() {
  remove_segments_of(seen_);
  const auto there = own_shared_files();
  for (const auto& [name, file] : noted_) {
    const auto found = there.find(name);
    std::error_code none;
    if (found != there.end() && found->second == file) fs::remove_all(kShared + name, none);
  }
}

size_t Footprint::look() {
  const auto now = std::chrono::steady_clock::now();
  if (!hears_of_a_file() && now - looked_ < kBetweenGlances) return bytes_;
  looked_ = now;
  const auto processes = descendants_of(::getpid(), others_);
  seen_.insert(processes.begin(), processes.end());
  note_files(processes);
  size_t own = 0, shared = 0;
  for (const auto process : processes) {
    const auto memory = memory_of(process);
    own += memory.own;
    shared = std::max(shared, memory.shared);  // they may map the same
  }
  return bytes_ = own + std::max(shared, bytes_of_files());
}

// to ask each process costs some: only where there is a file that nobody knows
void Footprint::note_files(const std::set<pid_t>& processes) {
  auto fresh = own_shared_files();
  std::erase_if(fresh, [&](const auto& file) {
    const auto is_in = [&](const auto& known) {
      const auto found = known.find(file.first);
      return found != known.end() && found->second == file.second;
    };
    return is_in(before_) || is_in(noted_);
  });
  if (fresh.empty()) return;
  for (const auto process : processes) {
    for (const auto& name : opened_by(process)) {
      if (const auto found = fresh.find(name); found != fresh.end()) noted_[name] = found->second;
    }
  }
}

size_t Footprint::bytes_of_files() const {
  size_t bytes = 0;
  for (const auto& [name, file] : noted_) bytes += bytes_below(kShared + name);
  return bytes;
}

namespace {

using Clock = std::chrono::steady_clock;
using Children = std::vector<std::unique_ptr<Child>>;

constexpr std::chrono::milliseconds kGlance{50};

bool any_runs(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->is_running(); });
}

bool any_failed(const Children& children) {
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child->has_failed(); });
}

void wait_a_little(const Children& children, const Footprint& footprint) {
  std::vector<pollfd> waited;
  footprint.add_to(waited);
  for (const auto& child : children) child->add_to(waited);
  ::poll(waited.data(), waited.size(), static_cast<int>(kGlance.count()));
}

}  // namespace

std::vector<Ending> run_confined(const std::vector<ConfinedCommand>& commands, const ProgramLimits& limits) {
  const Interruption interruption;
  const Reaper reaper;
  Footprint footprint(reaper.others());
  Children children;
  for (const auto& command : commands) children.push_back(std::make_unique<Child>(command, limits));
  auto deadline = Clock::now() + limits.time;
  bool hurried = false;
  while (any_runs(children)) {
    wait_a_little(children, footprint);
    Interruption::check();
    for (const auto& child : children) child->look();
    if (footprint.look() > limits.together) {
      for (const auto& child : children) child->stop(Why::too_much_memory);
    }
    if (!hurried && any_failed(children)) {
      hurried = true;
      deadline = std::min(deadline, Clock::now() + limits.grace);
    }
    if (Clock::now() < deadline) continue;
    for (const auto& child : children) child->stop(Why::too_long);
  }
  reaper.sweep();
  std::vector<Ending> endings;
  for (const auto& child : children) endings.push_back(child->take());
  return endings;
}

}  // namespace lockstep::workshop
