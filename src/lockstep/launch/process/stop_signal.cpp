#include "lockstep/launch/process/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/launch/process/terminal.h"

namespace lockstep::launch {
namespace {

// A scheduler and mpirun both forward a signal to a rank: two within this time are one request.
constexpr int64_t kSameRequestNs = 500'000'000;

std::atomic<int> first_signal{0};
std::atomic<pid_t> first_sender{0};
std::atomic<int64_t> urgent_time{0};  // of the first SIGTERM or SIGINT
std::atomic<int64_t> term_time{0};
int lifetimes = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free, "the handler may not take a lock");

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void note_time(std::atomic<int64_t>& first, int64_t now) {
  int64_t never = 0;
  first.compare_exchange_strong(never, now);
}

void on_signal(int signal, siginfo_t* facts, void*) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal))
    first_sender = facts->si_code <= 0 ? facts->si_pid : 0;
  if (signal != SIGTERM && signal != SIGINT) return;
  const int64_t now = now_ns();
  if (signal == SIGTERM) note_time(term_time, now);
  note_time(urgent_time, now);
  if (now - urgent_time > kSameRequestNs) ::_exit(kFailed);
}

}  // namespace

StopSignals::StopSignals() : StopSignals(kAll, on_signal) {}

EarlySignals::EarlySignals() : StopSignals(std::span(kAll).last(2), on_signal) {}

StopSignals::StopSignals(std::span<const int> signals, void (*handler)(int, siginfo_t*, void*)) {
  if (lifetimes++ == 0) first_signal = 0, first_sender = 0, urgent_time = 0, term_time = 0;
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : signals) {
    auto& [number, former] = former_.emplace_back(signal, action);
    ::sigaction(number, &action, &former);
    sigaddset(&handled, signal);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);  // a spawned rank starts with some blocked
}

StopSignals::~StopSignals() {
  for (const auto& [number, former] : former_) ::sigaction(number, &former, nullptr);
  --lifetimes;
}

int StopSignals::received() {
  return first_signal;
}

std::string StopSignals::origin() {
  if (first_signal == 0) return "";
  auto name = signal_name(first_signal);
  const auto launcher = first_sender == ::getppid() ? launcher_named(first_sender) : "";
  if (launcher.empty()) return name;
  return name + " from " + launcher + (first_signal == SIGTERM ? " (for example after Ctrl-C)" : "");
}

std::optional<std::chrono::duration<double>> StopSignals::since_term() {
  if (!term_time) return std::nullopt;
  return std::chrono::nanoseconds(now_ns() - term_time);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace lockstep::launch
