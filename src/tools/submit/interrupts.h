#pragma once
// Ctrl-C, or a closed terminal, of who submits a job and waits for it: the job is not ours to end, and its id
// must not be lost.

#include <signal.h>

#include <array>
#include <string>

namespace lockstep::submit {

/// What a program leaves with that Ctrl-C ended.
constexpr int kInterrupted = 128 + SIGINT;

/// For its lifetime a first SIGINT or SIGTERM is only noted; a second one ends the process. SIGHUP is noted
/// however often it comes, as a shell and the kernel each send one for the same terminal; under nohup it is
/// not heard.
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
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace lockstep::submit
