#pragma once
// Ctrl-C of who submits a job and waits for it: the job is not ours to end, and its id must not be lost.

#include <signal.h>

#include <array>
#include <string>

namespace lockstep::cli {

/// What a program leaves with that Ctrl-C ended.
constexpr int kInterrupted = 128 + SIGINT;

/// For its lifetime a first SIGINT or SIGTERM is only noted; a second one ends the process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  static bool came();

  /// For its lifetime a person who interrupts is told at once why nothing happens.
  class Answered {
   public:
    explicit Answered(std::string text);
    ~Answered();
    Answered(const Answered&) = delete;
    Answered& operator=(const Answered&) = delete;

   private:
    std::string text_;
  };

 private:
  static constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
  std::array<struct sigaction, 2> before_{};
};

}  // namespace lockstep::cli
