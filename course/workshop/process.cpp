#include "course/workshop/process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::workshop {
namespace {

constexpr std::chrono::seconds kSweeping{5};

}  // namespace

std::set<pid_t> children_of(pid_t pid) {
  namespace fs = std::filesystem;
  std::set<pid_t> found;
  std::error_code gone;
  for (fs::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", gone), end;
       !gone && thread != end; thread.increment(gone)) {
    std::ifstream file(thread->path() / "children");
    for (pid_t child = 0; file >> child;) found.insert(child);
  }
  return found;
}

std::set<pid_t> descendants_of(pid_t pid, const std::set<pid_t>& but) {
  std::set<pid_t> found;
  for (const auto child : children_of(pid)) {
    if (but.count(child) > 0 || !found.insert(child).second) continue;
    found.merge(descendants_of(child, {}));
  }
  return found;
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto behind_name = line.rfind(')');
  return behind_name != std::string::npos && line.compare(behind_name, 3, ") T") == 0;
}

Reaper::Reaper() : others_(children_of(::getpid())) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Reaper::~Reaper() {
  sweep();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

void Reaper::sweep() const {
  const auto deadline = std::chrono::steady_clock::now() + kSweeping;
  while (end_some() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool Reaper::end_some() const {
  bool any = false;
  for (const auto child : children_of(::getpid())) {
    if (others_.count(child) > 0) continue;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, WNOHANG);
    any = true;
  }
  return any;
}

namespace {

volatile std::sig_atomic_t noted = 0;

void note(int number) {
  noted = number;
}

}  // namespace

// without SA_RESTART: what waits looks up
Interruption::Interruption() {
  struct sigaction noting {};
  noting.sa_handler = note;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &noting, nullptr);
  }
}

Interruption::~Interruption() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

void Interruption::check() {
  if (noted != 0) throw Interrupted(noted);
}

namespace {

constexpr std::array<int, 3> kPassedOn = {SIGINT, SIGTERM, SIGHUP};

volatile pid_t guarded_child = 0;

void pass_on(int number) {
  if (guarded_child > 0) ::kill(guarded_child, number);
}

// who ignored one before still does
void pass_signals_on() {
  struct sigaction passing {
  }, before{};
  passing.sa_handler = pass_on;
  passing.sa_flags = SA_RESTART;
  for (const int number : kPassedOn) {
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(number, &passing, nullptr);
  }
}

bool is_passed_on(int number) {
  return std::find(kPassedOn.begin(), kPassedOn.end(), number) != kPassedOn.end();
}

[[noreturn]] void end_as_told(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
  ::_exit(kFailed);
}

// not by Ctrl-Z or a scheduler, which stop this process too, and let both go on
bool stays_stopped() {
  constexpr std::chrono::seconds kForAWhile{1};
  std::this_thread::sleep_for(kForAWhile);
  return is_stopped(guarded_child);
}

// A check that is stopped would hold what others wait for.
int wait_for_the_child(bool& was_stopped) {
  for (int status = 0;;) {
    if (::waitpid(guarded_child, &status, WUNTRACED) < 0 && errno == EINTR) continue;
    if (!WIFSTOPPED(status)) return status;
    was_stopped = WSTOPSIG(status) == SIGSTOP && stays_stopped();
    if (was_stopped) ::kill(guarded_child, SIGKILL);
  }
}

[[noreturn]] void end_as_the_child(const Reaper& reaper) {
  bool was_stopped = false;
  const int status = wait_for_the_child(was_stopped);
  guarded_child = 0;  // its number may be another process's now
  reaper.sweep();
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  if (is_passed_on(WTERMSIG(status))) end_as_told(WTERMSIG(status));
  const auto what = was_stopped ? std::string("the check was stopped (signal 19, SIGSTOP), and ended")
                                : format("the check was killed (signal {})", WTERMSIG(status));
  log::error(
      describe(Error(what, "",
                     was_stopped ? "did your program do it (kill)?"
                                 : "did your program do it (kill)? Or has this machine no memory left?")));
  ::_exit(kFailed);
}

}  // namespace

void stand_guard() {
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int number : kPassedOn) sigaddset(&passed, number);
  ::sigprocmask(SIG_BLOCK, &passed, &before);  // until it is known whom to pass them on to
  const auto guard = ::getpid();
  const Reaper reaper;
  guarded_child = ::fork();
  if (guarded_child > 0) pass_signals_on();
  if (guarded_child == 0) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (guarded_child > 0) end_as_the_child(reaper);
  if (guarded_child == 0 && ::getppid() != guard) end_as_told(SIGTERM);
}

}  // namespace lockstep::workshop
