#include "nccl/faults.h"

#include <atomic>

namespace lab::nccl {

long next_collective() {
  static std::atomic<long> count{0};
  return ++count;
}

bool strikes(Fault fault, long collective) {
  return settings().fault == fault && settings().fault_at == collective;
}

}  // namespace lab::nccl
