#pragma once
// Ctrl-C and its like, noted and not obeyed at once, so that nothing is left behind.

#include <array>
#include <csignal>

#include "lockstep/base/error.h"

namespace lockstep::workshop {

/// The checker was told to end; all that it had started is gone.
class Interrupted : public Error {
 public:
  explicit Interrupted(int number) : Error("interrupted"), number_(number) {}
  /// The signal.
  int number() const { return number_; }

 private:
  int number_;
};

/// While one lives, SIGINT, SIGTERM and SIGHUP are noted. Who ignored one before still does.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// Throws Interrupted where one has come.
  static void check();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace lockstep::workshop
