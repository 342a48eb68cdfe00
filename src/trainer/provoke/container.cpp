#include "trainer/provoke/container.h"

#include <sys/statvfs.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::train {
namespace {

// Docker gives 64 MB where nothing is said. NCCL takes up to 10 MB for each pair of ranks on a node.
constexpr int64_t kEnough = int64_t{1} << 30;

}  // namespace

int64_t shared_memory_bytes() {
  struct statvfs facts {};
  if (::statvfs("/dev/shm", &facts) != 0) return 0;
  return static_cast<int64_t>(facts.f_blocks * facts.f_frsize);
}

std::string say_shared_memory(int64_t bytes) {
  const auto holds = format("/dev/shm holds {} MB", bytes >> 20);
  if (bytes >= kEnough) return holds + ", which is enough";
  return holds + ", which is little for NCCL between a node's ranks: docker run --ipc=host or --shm-size=1g";
}

void require_container_for_nccl(const launch::GpuCount& gpus, int64_t shared_memory) {
  if (gpus.count > 0) return;
  throw InputError(
      "train.provoke: nccl_in_container needs a GPU, and this process sees none (" + gpus.because + ")",
      say_shared_memory(shared_memory),
      "start on a GPU node; in a container with docker run --gpus all, or apptainer exec --nv");
}

}  // namespace lockstep::train
