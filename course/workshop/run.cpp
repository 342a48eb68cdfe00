#include "course/workshop/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::workshop {
namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr int kFactsDescriptor = 3;
constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr double kBusyShare = 0.2;  // of a core; a program that waits needs a hundredth

volatile std::sig_atomic_t interruption = 0;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error("cannot create a pipe", "", "close some programs, then try again");
    out = Descriptor(ends[0]);
    in = Descriptor(ends[1]);
    ::fcntl(out.number(), F_SETFL, O_NONBLOCK);
  }
  Descriptor out, in;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

void set_limit(__rlimit_resource resource, size_t most) {
  rlimit bound{};
  ::getrlimit(resource, &bound);
  const auto value = std::min<rlim_t>(most, bound.rlim_max);
  bound = {value, value};
  ::setrlimit(resource, &bound);
}

double cpu_seconds(const rusage& used) {
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// How long the process was ready to run but had no core; 0 where the kernel does not count it.
double seconds_in_run_queue(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
  double computed = 0, queued = 0;
  file >> computed >> queued;
  return file ? queued / 1e9 : 0;
}

class Child {
 public:
  Child(const Command& command, const ProgramLimits& limits);
  ~Child() { stop(Why::too_long); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool is_running() const { return pid_ > 0; }
  bool has_failed() const { return !is_running() && !ending_.is_well(); }
  void add_to(std::vector<pollfd>& waited) const;
  /// Reads what is there, and notices the end.
  void look();
  void stop(Why why);
  Ending take() { return std::move(ending_); }

 private:
  [[noreturn]] void become(char** argv, char** environment, const char* folder, pid_t parent) const;
  void read(Descriptor& from, std::string& into) const;
  void read_all();
  int reap();

  const ProgramLimits& limits_;
  Pipe printed_, facts_;
  pid_t pid_ = 0;
  Ending ending_;
  Clock::time_point began_ = Clock::now();
};

Child::Child(const Command& command, const ProgramLimits& limits) : limits_(limits) {
  auto words = command.argv;
  const auto descriptor = std::to_string(kFactsDescriptor);
  std::vector<std::string> settings = {"LOCKSTEP_FACTS_FD=" + descriptor, "LOCKSTEP_ERRORS=" + descriptor};
  for (const auto& [name, value] : command.environment) settings.push_back(name + "=" + value);
  auto argv = pointers(words), environment = pointers(settings);
  const auto parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(argv.data(), environment.data(), command.folder.c_str(), parent);
  printed_.in.close();
  facts_.in.close();
  if (pid_ < 0) ending_ = {.why = Why::not_started, .status = errno};
}

void Child::become(char** argv, char** environment, const char* folder, pid_t parent) const {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  // first above 3: a pipe's own number may be the one that the other belongs to
  const int printed = ::fcntl(printed_.in.number(), F_DUPFD_CLOEXEC, kFactsDescriptor + 1);
  const int facts = ::fcntl(facts_.in.number(), F_DUPFD_CLOEXEC, kFactsDescriptor + 1);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(printed, STDOUT_FILENO);
  ::dup2(printed, STDERR_FILENO);
  ::dup2(facts, kFactsDescriptor);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_DATA, limits_.memory);
  set_limit(RLIMIT_FSIZE, limits_.file);
  if (::chdir(folder) == 0) ::execvpe(argv[0], argv, environment);
  ::dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

void Child::add_to(std::vector<pollfd>& waited) const {
  for (const auto* pipe : {&printed_, &facts_})
    if (is_running() && pipe->out) waited.push_back({pipe->out.number(), POLLIN, 0});
}

void Child::read(Descriptor& from, std::string& into) const {
  std::array<char, 65536> part;
  while (from && into.size() < limits_.output) {
    const auto count = ::read(from.number(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      from.close();
      return;
    }
    into.append(part.data(), std::min(limits_.output - into.size(), static_cast<size_t>(count)));
  }
}

void Child::read_all() {
  read(printed_.out, ending_.printed);
  read(facts_.out, ending_.facts);
}

// Kills what is left of its process group, and returns its wait status.
int Child::reap() {
  int status = 0;
  rusage used{};
  const double queued = seconds_in_run_queue(pid_);
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::wait4(pid_, &status, 0, &used) < 0 && errno == EINTR) continue;
  pid_ = 0;
  ending_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  ending_.was_busy = cpu_seconds(used) + queued > kBusyShare * ending_.seconds;
  read_all();
  return status;
}

void Child::look() {
  read_all();
  if (!is_running()) return;
  siginfo_t ended{};
  const bool has_ended =
      ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
  if (has_ended) {
    const int status = reap();
    ending_.why = WIFSIGNALED(status) ? Why::signal : Why::left;
    ending_.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (std::max(ending_.printed.size(), ending_.facts.size()) >= limits_.output) stop(Why::too_much_output);
}

void Child::stop(Why why) {
  if (!is_running()) return;
  reap();
  ending_.why = why;
}

using Children = std::vector<std::unique_ptr<Child>>;

bool is_any(const Children& children, bool (Child::*is)() const) {
  return std::any_of(children.begin(), children.end(), [&](const auto& child) { return ((*child).*is)(); });
}

}  // namespace

std::vector<Ending> run_limited(const std::vector<Command>& commands, const ProgramLimits& limits) {
  note_interruptions();
  Children children;
  for (const auto& command : commands) children.push_back(std::make_unique<Child>(command, limits));
  auto deadline = Clock::now() + limits.time;
  bool has_failed = false;
  while (is_any(children, &Child::is_running)) {
    std::vector<pollfd> waited;
    for (const auto& child : children) child->add_to(waited);
    ::poll(waited.data(), waited.size(), static_cast<int>(kBetweenLooks.count()));
    check_interrupted();
    for (const auto& child : children) child->look();
    if (!has_failed && is_any(children, &Child::has_failed)) {
      has_failed = true;
      deadline = std::min(deadline, Clock::now() + limits.grace);
    }
    if (Clock::now() < deadline) continue;
    for (const auto& child : children) child->stop(Why::too_long);
  }
  std::vector<Ending> endings;
  for (const auto& child : children) endings.push_back(child->take());
  return endings;
}

void note_interruptions() {
  struct sigaction noting {
  }, before{};
  noting.sa_handler = [](int number) { interruption = number; };  // without SA_RESTART: poll() returns
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(number, &noting, nullptr);
  }
}

void check_interrupted() {
  if (interruption != 0) throw Interrupted(interruption);
}

}  // namespace lockstep::workshop
