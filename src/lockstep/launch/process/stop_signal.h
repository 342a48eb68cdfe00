#pragma once
// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 mean "save a checkpoint and exit": the handler only sets a flag. A
// second SIGTERM or SIGINT exits at once; further SIGUSR1 and SIGUSR2 have no effect.

#include <signal.h>

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// Handles these signals during its lifetime, then restores the former handlers. Signals are remembered until
/// the outermost object is destroyed.
class StopSignals {
 public:
  static constexpr std::array kAll = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};  // the most urgent first

  StopSignals();
  StopSignals(StopSignals&&) = delete;
  ~StopSignals();

  /// The first signal, or 0.
  static int received();
  /// Its name, and the mpirun that sent it: Ctrl-C there reaches a rank as SIGTERM. Empty without a signal.
  static std::string origin();
  /// The time since the first SIGTERM.
  static std::optional<std::chrono::duration<double>> since_term();

 protected:
  StopSignals(std::span<const int> signals, void (*handler)(int, siginfo_t*, void*));

 private:
  std::vector<std::pair<int, struct sigaction>> former_;
};

/// While the ranks meet: remembers SIGUSR1 and SIGUSR2. SIGTERM and SIGINT end the process, because a missing
/// rank may never arrive.
class EarlySignals : public StopSignals {
 public:
  EarlySignals();
};

/// "SIGTERM" and so on.
std::string signal_name(int signal);

}  // namespace lockstep::launch
