#pragma once
// Work that may crash, wait or want everything, in a process of its own.

#include <cstddef>
#include <functional>

namespace lockstep::fuzz {

struct ApartLimits {
  int seconds = 5;                          ///< of the processor's
  size_t tensor_bytes = size_t{256} << 20;  ///< held at once
};

enum class Ended {
  well,
  by_exception,  ///< of the standard library's family
  by_limit,      ///< of its time
  by_division,   ///< of integers
};

/// Does the work in a fork of this process, on one thread, and says how it ended. Anything else (another
/// signal, another exception than those of the standard library's family, an exit, a minute without an end)
/// is a std::runtime_error here.
Ended run_apart(const std::function<void()>& work, const ApartLimits& limits = {});

}  // namespace lockstep::fuzz
