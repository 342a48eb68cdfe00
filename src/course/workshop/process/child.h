#pragma once
// One of a learner's programs while it runs: what it says, whether it computes, and its end.

#include <poll.h>
#include <sys/types.h>

#include <vector>

#include "course/workshop/process/confined.h"
#include "lockstep/base/descriptor.h"

namespace lockstep::workshop {

class Child {
 public:
  Child(const ConfinedCommand& command, const ProgramLimits& limits);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool is_running() const { return pid_ > 0; }
  bool has_failed() const { return !is_running() && !ending_.is_well(); }
  /// The descriptors on which it may say something.
  void add_to(std::vector<pollfd>& waited) const;
  /// Takes what is there to read, and notices its end.
  void look();
  /// Ends it, for this reason.
  void stop(Why why);
  Ending take() { return std::move(ending_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pipe {
    Pipe();
    base::Descriptor out, in;
  };
  struct Work {
    Clock::time_point at = Clock::now();
    double wanted = 0;  // seconds of a core
  };

  [[noreturn]] void become(const std::vector<char*>& argv, const std::vector<char*>& environment,
                           const std::string& folder, pid_t parent) const;
  void read(base::Descriptor& from, std::string& into) const;
  void read_all();
  void notice_end();
  void end();
  Work work_now() const;
  void note_work();
  bool is_busy() const;

  const ProgramLimits& limits_;
  const unsigned long tasks_;
  Pipe said_, facts_;
  pid_t pid_ = 0;
  Ending ending_;
  Work before_, lately_;  // a second or more apart
  Clock::time_point began_ = Clock::now();
};

}  // namespace lockstep::workshop
