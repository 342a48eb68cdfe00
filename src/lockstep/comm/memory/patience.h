#pragma once
// How long and how to wait for another rank inside a collective: spin, then sleep or yield, and look up now
// and then.

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/base/awake.h"
#include "lockstep/comm/memory/spin.h"
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
  /// What is waited in, as the roll counts it.
  uint64_t collective() const { return collective_; }

  /// One turn of a waiting loop for `rank` (-1: nobody in particular). Throws OutOfPatience when this process
  /// has been awake for the timeout, or when that rank has ended.
  void turn(int rank = -1);
  /// The same where the one awaited can wake this one: sleep(longest) takes the place of yielding. A core
  /// that others want is given up soon, and is back soon, which yielding does not bring about.
  template <class Sleep>
  void turn(int rank, const Sleep& sleep) {
    if (spin_.again()) return;
    sleep(kLongestSleep);
    look_up(rank);
  }
  /// Before each wait: spin again, so long where the one awaited can wake this one.
  void restart(std::chrono::nanoseconds longest_spin = SpinLength().longest()) {
    turns_ = 0;
    spin_ = Spin(crowded_, longest_spin);
  }

 private:
  static constexpr std::chrono::milliseconds kLongestSleep{20};

  void look_up(int rank);

  const RollCall& roll_;
  uint64_t collective_;
  std::chrono::milliseconds timeout_;
  base::AwakeTime awake_;
  std::chrono::steady_clock::time_point next_look_;
  bool crowded_;
  int turns_ = 0;
  Spin spin_;
};

}  // namespace lockstep::comm
