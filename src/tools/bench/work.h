#pragma once
// Counts the arithmetic that libtorch does in a step, for any model.

#include <cstdint>

namespace lockstep::bench {

/// Floating-point operations of matrix products and convolutions; a multiplication and an addition are two.
struct Work {
  double forward = 0;
  double backward = 0;

  double all() const { return forward + backward; }
};

/// Counts for as long as it lives, on every thread of the process. One at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(FlopCounter&&) = delete;

  Work so_far() const;

 private:
  uint64_t handle_;
};

}  // namespace lockstep::bench
