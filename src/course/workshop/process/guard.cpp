#include "course/workshop/process/guard.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "course/workshop/process/processes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::workshop {
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
