#include "course/workshop/process/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
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

}  // namespace lockstep::workshop
