#pragma once
// A signal that ends the process is heard first: a thread of its own gets the time for last words.

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <signal.h>

#include "lockstep/base/descriptor.h"

namespace lockstep::doctor {

/// For its lifetime; one at a time. Signals that somebody ignores or handles already stay as they are.
class EndSignals {
 public:
  /// With whether the process was stopped (SIGSTOP) until a moment before: mpirun wakes a rank to end it.
  using Heard = std::function<void(int signal, bool was_stopped)>;
  /// `heard` runs in a thread, where it may do what a handler may not; it ends the process by end_by().
  explicit EndSignals(Heard heard);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

 private:
  base::Descriptor read_, write_;
  std::vector<std::pair<int, struct sigaction>> former_;
  std::thread thread_;
};

/// Ends this process as the signal would have.
[[noreturn]] void end_by(int signal);

}  // namespace lockstep::doctor
