#pragma once
// Named ranges for Nsight Systems (NVTX), through the hooks of libtorch's own profiler: no header of CUDA's.

#include <cstdint>

#include "lockstep/parallel/comm_hook.h"

namespace lockstep::train {

/// A step, and in it its phases, one after the other.
class Ranges {
 public:
  Ranges() = default;
  ~Ranges() { leave(); }
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  void begin_step(int64_t number, const char* phase);
  void enter(const char* phase);
  /// Out of the step.
  void leave();

 private:
  void close(int left);
  int open_ = 0;  // of this thread: a step, a phase in it
};

/// The hook, with a range around each bucket's start; where there is none, around the usual all-reduce.
CommHook ranged(CommHook hook, const ProcessGroup& group);

}  // namespace lockstep::train
