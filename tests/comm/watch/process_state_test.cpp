#include "lockstep/comm/watch/findings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

// A child that sleeps until it is killed, and is reaped at the end of the test.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    while (true) ::pause();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  int pid_;
};

TEST(ProcessState, TellsRunningStoppedAndGone) {
  const Child child;
  EXPECT_EQ(process_state(child.pid()), ProcessState::running);
  int status = 0;
  ::kill(child.pid(), SIGSTOP);
  ::waitpid(child.pid(), &status, WUNTRACED);
  EXPECT_EQ(process_state(child.pid()), ProcessState::stopped);
  ::kill(child.pid(), SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);  // a zombie now
  EXPECT_EQ(process_state(child.pid()), ProcessState::gone);
}

TEST(ProcessState, AProcessThatNeverWasIsGone) {
  int pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(process_state(pid), ProcessState::gone);
}

}  // namespace
}  // namespace lockstep::comm
