#pragma once
// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 mean "checkpoint and leave": the handler sets a flag and nothing else.
// A second SIGTERM or SIGINT leaves at once; SIGUSR1 and SIGUSR2 are warnings, however often they come.

#include <signal.h>

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// Catches these signals for its lifetime, then puts the former handlers back. What came stays known until
/// the outermost one is gone.
class StopSignals {
 public:
  static constexpr std::array kAll = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};  // the most urgent first

  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that came first, or 0.
  static int received();
  /// Its name; where it came from the mpirun that started this process, that too: Ctrl-C there reaches a rank
  /// as SIGTERM. Nothing where none came.
  static std::string origin();
  /// How long ago the first SIGTERM came; nothing where none has.
  static std::optional<std::chrono::duration<double>> since_term();

 protected:
  StopSignals(std::span<const int> signals, void (*handler)(int, siginfo_t*, void*));

 private:
  std::vector<std::pair<int, struct sigaction>> former_;
};

/// While the ranks meet: SIGUSR1 and SIGUSR2 are kept until they have. SIGTERM and SIGINT end the process, as
/// whoever is waited for may never come.
class EarlySignals : public StopSignals {
 public:
  EarlySignals();
};

/// "SIGTERM" and so on.
std::string signal_name(int signal);

}  // namespace lockstep::launch
