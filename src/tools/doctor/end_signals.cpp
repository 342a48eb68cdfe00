#include "tools/doctor/end_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

namespace lockstep::doctor {
namespace {

constexpr int kEnds[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

constexpr std::chrono::milliseconds kLook{200}, kAwake{1000};
constexpr std::chrono::seconds kToEnd{3};  // mpirun wakes a stopped rank, waits a second, and ends it

std::atomic<int> ear{-1};

void on_signal(int signal) {
  const int kept = errno;
  const auto word = static_cast<unsigned char>(signal);
  if (::write(ear, &word, 1) != 1) ::_exit(128 + signal);
  errno = kept;
}

// Looks up often: between two looks a process that runs does not miss a second.
void listen(int from, const EndSignals::Heard& heard) {
  using Clock = std::chrono::steady_clock;
  for (auto looked = Clock::now(), woke = looked - kToEnd;;) {
    pollfd word_to_come{from, POLLIN, 0};
    const int ready = ::poll(&word_to_come, 1, static_cast<int>(kLook.count()));
    const auto now = Clock::now();
    if (now - looked > kLook + kAwake) woke = now;
    looked = now;
    if (ready <= 0) continue;
    unsigned char word = 0;
    const auto got = ::read(from, &word, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
    if (got == 1) heard(word, now - woke < kToEnd);
  }
}

}  // namespace

EndSignals::EndSignals(Heard heard) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  read_ = base::Descriptor(ends[0]);
  write_ = base::Descriptor(ends[1]);
  ear = ends[1];
  thread_ = std::thread([from = ends[0], heard = std::move(heard)] { listen(from, heard); });
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
