#pragma once
// SIGTERM, SIGUSR1 and SIGUSR2 mean "checkpoint and leave": the handler sets a flag and nothing else, a
// second signal leaves at once.

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::train {

/// Installs the handlers for its lifetime and puts the former ones back.
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
};

/// "SIGTERM" and so on.
std::string signal_name(int signal);

}  // namespace lockstep::train
