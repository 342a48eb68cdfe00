#pragma once
// Counts the arithmetic that libtorch does in a step, for any model.

#include <functional>

namespace lockstep::bench {

/// Floating-point operations of matrix products and convolutions; a multiplication and an addition are two.
struct Work {
  double forward = 0;
  double backward = 0;
};

/// Of these steps, on every thread of the process. One call at a time.
Work count_work(const std::function<void()>& steps);

}  // namespace lockstep::bench
