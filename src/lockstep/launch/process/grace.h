#pragma once
// A SIGTERM may mean that a peer is dead and the launcher is clearing up: nobody is left to agree with, and
// the launcher's SIGKILL comes 1.9 s later (Open MPI 4). A bounded wait, then this rank leaves by itself.

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// How long a rank may look for agreement after a SIGTERM.
double grace_seconds(const Job& job, const Environment& environment);

/// Calls `give_up` from its own thread when a SIGTERM is older than the patience, counted in time in which
/// this process was not suspended, and nobody has called agreed().
class Grace {
 public:
  Grace(double seconds, std::function<void()> give_up);
  ~Grace();
  Grace(const Grace&) = delete;
  Grace& operator=(const Grace&) = delete;

  void agreed() { agreed_ = true; }

 private:
  std::atomic<bool> agreed_{false}, over_{false};
  std::thread thread_;
};

}  // namespace lockstep::launch
