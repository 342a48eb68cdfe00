#include "nccl/start.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "lab.h"
#include "nccl/errors.h"
#include "nccl/group.h"
#include "nccl/handles.h"

namespace lab::nccl {

ncclResult_t read_config(const ncclConfig_t* config, bool otherwise, bool& blocking) {
  static const ncclConfig_t initialized = NCCL_CONFIG_INITIALIZER;
  if (config && config->magic != initialized.magic)
    return refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  blocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0 : otherwise;
  if (const char* chosen = std::getenv("NCCL_COMM_BLOCKING")) blocking = std::string(chosen) != "0";
  return ncclSuccess;
}

CommPtr new_comm(bool blocking) {
  auto comm = std::make_shared<Comm>();
  comm->blocking = blocking;
  cudaGetDevice(&comm->device);
  return comm;
}

ncclResult_t check_size(int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size)
    return refuse(ncclInvalidArgument, formatted("Invalid rank requested : %d/%d", rank, size));
  if (size <= kMaxRanks) return ncclSuccess;
  const auto text = formatted(
      "the pretended NCCL has room for %d ranks, and a communicator of %d is asked for", kMaxRanks, size);
  say("%s", text.c_str());
  return refuse(ncclInvalidUsage, text);
}

ncclResult_t begin(const CommPtr& comm, ncclComm_t* handle, std::function<ncclResult_t()> meeting) {
  *handle = handle_of(comm);
  if (!comm->blocking) {
    comm->progress = ncclInProgress;
    add_background();
    std::thread([comm, meeting = std::move(meeting)] { comm->progress = meeting(); }).detach();
    return ncclSuccess;
  }
  add_meeting([handle, meeting = std::move(meeting)] {
    const auto error = meeting();
    if (error != ncclSuccess) {
      forget(*handle);
      *handle = nullptr;
    }
    return error;
  });
  return ncclSuccess;
}

}  // namespace lab::nccl
