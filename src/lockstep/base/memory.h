#pragma once
// No memory left is an error like any other: it says where, and what to do.

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::base {

inline constexpr const char* kMoreMemory =
    "ask for more memory a node, or start fewer ranks on it; where a file is named, is it the right one?";

inline constexpr const char* kMoreGpuMemory =
    "less is needed by a smaller batch (data.batch_size; train.accumulate gives the optimiser as many "
    "samples), by computing activations again (model.checkpointing), by bf16 (train.precision) and by a "
    "sharded optimiser (optim.sharded); nvidia-smi shows who else is there";

/// Whether this is how the standard library or libtorch say that there is no memory left.
bool is_out_of_memory(const std::exception& error);

/// Does the work; where memory ends, throws an Error that names `where`.
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

/// What a reader may hold of a file that somebody else wrote: so much, whatever its size, and so many bytes
/// for each of its own. Honest files need a tenth of it; small files that swell are stopped.
inline constexpr size_t kHeldAlways = size_t{64} << 20;
inline constexpr size_t kHeldPerByte = 32;

class Allowance {
 public:
  explicit Allowance(size_t file_bytes) : left_(kHeldAlways + kHeldPerByte * file_bytes) {}
  /// False once more is asked for than there is.
  bool take(size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  size_t left_;
};

}  // namespace lockstep::base
