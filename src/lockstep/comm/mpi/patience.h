#pragma once
// How long and how to wait for another rank inside a collective: spin, then yield, and look up now and then.

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/awake.h"
#include "lockstep/comm/watch/roll_call.h"

namespace lockstep::comm {

/// Thrown out of a collective that cannot end; the backend turns it into an error that names the ranks.
struct OutOfPatience {
  bool timed_out = false;
  std::string cause = "";  // the backend's own words
};

class Patience {
 public:
  Patience(const RollCall& roll, uint64_t collective, std::chrono::milliseconds timeout, bool crowded);

  /// One turn of a waiting loop for `rank` (-1: nobody in particular). Throws OutOfPatience when this process
  /// has been awake for the timeout, or when that rank has ended.
  void turn(int rank = -1);
  /// Before each wait: spin anew before yielding.
  void restart() { turns_ = 0; }

 private:
  void look_up(int rank);

  const RollCall& roll_;
  uint64_t collective_;
  std::chrono::milliseconds timeout_;
  base::AwakeTime awake_;
  std::chrono::steady_clock::time_point next_look_;
  int spins_;
  int turns_ = 0;
};

}  // namespace lockstep::comm
