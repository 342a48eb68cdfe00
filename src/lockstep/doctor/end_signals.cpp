#include "lockstep/doctor/end_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace lockstep::doctor {
namespace {

constexpr int kEnds[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

std::atomic<int> ear{-1};

void on_signal(int signal) {
  const int kept = errno;
  const auto word = static_cast<unsigned char>(signal);
  if (::write(ear, &word, 1) != 1) ::_exit(128 + signal);
  errno = kept;
}

}  // namespace

EndSignals::EndSignals(std::function<void(int signal)> heard) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  read_ = base::Descriptor(ends[0]);
  write_ = base::Descriptor(ends[1]);
  ear = ends[1];
  thread_ = std::thread([from = ends[0], heard = std::move(heard)] {
    unsigned char word = 0;
    for (ssize_t got = 0; (got = ::read(from, &word, 1)) != 0;) {
      if (got == 1) heard(word);
      if (got < 0 && errno != EINTR) return;
    }
  });
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kEnds) {
    struct sigaction former {};
    ::sigaction(signal, nullptr, &former);
    if (former.sa_handler != SIG_DFL) continue;
    ::sigaction(signal, &action, nullptr);
    former_.emplace_back(signal, former);
  }
}

EndSignals::~EndSignals() {
  for (const auto& [signal, former] : former_) ::sigaction(signal, &former, nullptr);
  write_.close();
  if (thread_.joinable()) thread_.join();
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace lockstep::doctor
