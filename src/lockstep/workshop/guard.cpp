#include "lockstep/workshop/guard.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::workshop {
namespace {

constexpr std::array<int, 3> kPassedOn = {SIGINT, SIGTERM, SIGHUP};

volatile pid_t guarded_child = 0;

void pass_on(int number) {
  ::kill(guarded_child, number);
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

[[noreturn]] void end_as_the_child() {
  int status = 0;
  while (::waitpid(guarded_child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  if (is_passed_on(WTERMSIG(status))) end_as_told(WTERMSIG(status));
  log::error(describe(Error(format("the check was killed (signal {})", WTERMSIG(status)), "",
                            "did your program do it (kill)? Or has this machine no memory left?")));
  ::_exit(kFailed);
}

}  // namespace

void stand_guard() {
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int number : kPassedOn) sigaddset(&passed, number);
  ::sigprocmask(SIG_BLOCK, &passed, &before);  // until it is known whom to pass them on to
  const auto guard = ::getpid();
  guarded_child = ::fork();
  if (guarded_child > 0) pass_signals_on();
  if (guarded_child == 0) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (guarded_child > 0) end_as_the_child();
  if (guarded_child == 0 && ::getppid() != guard) end_as_told(SIGTERM);
}

}  // namespace lockstep::workshop
