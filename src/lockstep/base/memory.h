#pragma once
// Out of memory as an error with a place and a hint.

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::base {

inline constexpr const char* kMoreMemory =
    "request more memory per node, or start fewer ranks on it; if a file is named, check that it is the "
    "right one";

inline constexpr const char* kMoreGpuMemory =
    "set a smaller data.batch_size (with train.accumulate for the same samples per step), "
    "model.checkpointing, "
    "train.precision: bf16 or optim.sharded; nvidia-smi shows other processes on the GPU";

/// Whether the standard library or libtorch ran out of memory.
bool is_out_of_memory(const std::exception& error);

/// Runs `work`; if memory runs out, throws an Error with `where`.
template <class Work>
auto with_memory_for(const std::string& where, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error("there is not enough memory", where, kMoreMemory).of(Code::no_memory);
  }
}

/// The memory that a reader may use for a file: a fixed amount, plus so many bytes for each byte of the file.
/// Ordinary files need a tenth of it; a small file that expands too much is refused.
inline constexpr size_t kHeldAlways = size_t{64} << 20;
inline constexpr size_t kHeldPerByte = 32;

class Allowance {
 public:
  explicit Allowance(size_t file_bytes) : left_(kHeldAlways + kHeldPerByte * file_bytes) {}
  /// False if less than `bytes` is left.
  bool take(size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  size_t left_;
};

}  // namespace lockstep::base
