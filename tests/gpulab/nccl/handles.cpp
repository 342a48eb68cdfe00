#include "nccl/handles.h"

#include <unordered_map>

#include "nccl/errors.h"

namespace lab::nccl {
namespace {

struct Handles {
  std::mutex mutex;
  std::unordered_map<ncclComm_t, CommPtr> all;
};
Handles& handles() {
  static auto* const made = new Handles;  // streams may use theirs until the process ends
  return *made;
}

}  // namespace

ncclComm_t handle_of(const CommPtr& comm) {
  const auto handle = reinterpret_cast<ncclComm_t>(comm.get());
  const std::lock_guard lock(handles().mutex);
  handles().all.emplace(handle, comm);
  return handle;
}

CommPtr find(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().all.find(handle);
  return found == handles().all.end() ? nullptr : found->second;
}

void forget(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  handles().all.erase(handle);
}

ncclResult_t refuse_handle(const char* call) {
  return refuse(ncclInvalidArgument, formatted("%s: no communicator, or one that has been destroyed", call));
}

}  // namespace lab::nccl
