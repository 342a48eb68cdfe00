#pragma once
// SIGTERM, SIGUSR1 and SIGUSR2 mean "checkpoint and leave": the handler sets a flag and nothing else, a
// second signal leaves at once.

#include <signal.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

/// Catches these signals for its lifetime, then puts the former handlers back. What came stays known until
/// the outermost one is gone.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that came, or 0.
  static int received();
  /// How long ago it came.
  static std::chrono::duration<double> age();

 protected:
  StopSignals(std::initializer_list<int> signals, void (*handler)(int));

 private:
  std::vector<std::pair<int, struct sigaction>> former_;
};

/// While a run is set up: SIGUSR1 and SIGUSR2 are kept for its first step, however often they come. SIGTERM
/// ends the process, as there is nothing to save.
class EarlySignals : public StopSignals {
 public:
  EarlySignals();
};

/// "SIGTERM" and so on.
std::string signal_name(int signal);

}  // namespace lockstep::train
