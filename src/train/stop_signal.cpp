#include "train/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/error.h"

namespace lockstep::train {
namespace {

// A scheduler and mpirun both forward the same signal to a rank, milliseconds apart: that is one request.
constexpr int64_t kSameRequestNs = 200'000'000;
// A job script holds a signal back until the run has begun, and then repeats what the ranks know already.
constexpr int64_t kSameEarlyRequestNs = 10'000'000'000;

std::atomic<int> first_signal{0};
std::atomic<int64_t> first_time{0};
std::atomic<int64_t> same_until{0};  // the same signal until then is the same request
int lifetimes = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free, "the handler may not take a lock");

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void on_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_time = now_ns();
    same_until = first_time + kSameRequestNs;
  } else if (none != signal || now_ns() > same_until) {
    ::_exit(kFailed);
  }
}

void on_early_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) first_time = now_ns();
}

}  // namespace

StopSignals::StopSignals() : StopSignals({SIGTERM, SIGUSR1, SIGUSR2}, on_signal) {
  if (first_signal) same_until = now_ns() + kSameEarlyRequestNs;
}

EarlySignals::EarlySignals() : StopSignals({SIGUSR1, SIGUSR2}, on_early_signal) {}

StopSignals::StopSignals(std::initializer_list<int> signals, void (*handler)(int)) {
  if (lifetimes++ == 0) first_signal = 0;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : signals) {
    auto& [number, former] = former_.emplace_back(signal, action);
    ::sigaction(number, &action, &former);
  }
}

StopSignals::~StopSignals() {
  for (const auto& [number, former] : former_) ::sigaction(number, &former, nullptr);
  --lifetimes;
}

int StopSignals::received() {
  return first_signal;
}

std::chrono::duration<double> StopSignals::age() {
  return std::chrono::nanoseconds(first_signal ? now_ns() - first_time : 0);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace lockstep::train
