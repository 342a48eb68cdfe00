#pragma once
// `lockstep submit --wait`: a job's log and progress to its end, through requeues, chains and sweeps.

#include <signal.h>

#include <array>
#include <string>

#include "tools/submit/submission.h"

namespace lockstep::submit {

/// Follows it to its end and returns its status, by the runs' own word. Where Interrupts::came(), it leaves
/// the jobs alone and returns 130.
int wait_for(const Submission& submission);

/// Says that nobody waits any longer, and how to follow; 130.
int detach(const Submission& submission);

// Ctrl-C, or a closed terminal, of who submits a job and waits for it: the job is not ours to end, and its id
// must not be lost.

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
