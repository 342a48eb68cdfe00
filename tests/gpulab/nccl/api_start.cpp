// Communicators that begin of themselves.
#include <cuda_runtime_api.h>

#include <set>

#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/launch.h"
#include "nccl/meeting.h"
#include "nccl/names.h"
#include "nccl/start.h"

namespace lab::nccl {
namespace {

ncclResult_t start(ncclComm_t* handle, int size, const ncclUniqueId& id, int rank,
                   const ncclConfig_t* config) {
  if (const auto error = check_size(size, rank)) return error;
  bool blocking = true;
  if (const auto error = read_config(config, true, blocking)) return error;
  auto comm = new_comm(blocking);
  comm->size = size;
  comm->rank = rank;
  comm->name = name_in(id);
  if (comm->name.empty())
    return refuse(ncclInvalidArgument, "ncclCommInitRank: an id that ncclGetUniqueId has not made");
  return begin(comm, handle, [comm] { return meet(*comm); });
}

ncclResult_t check_devices_of_one_process(int count, const int* devices) {
  int here = 0;
  if (cudaGetDeviceCount(&here) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "no CUDA-capable device is detected");
  std::set<int> seen;
  for (int i = 0; i < count; ++i) {
    const int device = devices ? devices[i] : i;
    if (device < 0 || device >= here)
      return refuse(ncclInvalidArgument, formatted("Invalid device %d", device));
    if (!seen.insert(device).second)
      return refuse(ncclInvalidUsage, formatted("Device %d is used twice", device));
  }
  return ncclSuccess;
}

// All on one board, each at its seat: nobody needs to wait.
ncclResult_t start_all(ncclComm_t* handles, int count, const int* devices) {
  const auto board = private_board();
  if (!board) return refuse(ncclSystemError, "no memory for communicators");
  const std::string name = new_name();
  std::vector<CommPtr> all;
  for (int i = 0; i < count; ++i) {
    auto& comm = all.emplace_back(new_comm(true));
    comm->name = name;
    comm->size = count;
    comm->rank = i;
    comm->device = devices ? devices[i] : i;
    comm->set_board(board);
    comm->own().facts = own_facts(*comm);
  }
  for (const auto& comm : all)
    if (const auto error = check_all(*comm)) return error;
  for (int i = 0; i < count; ++i) handles[i] = handle_of(all[static_cast<std::size_t>(i)]);
  return ncclSuccess;
}

}  // namespace
}  // namespace lab::nccl

NCCL_CALL ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

NCCL_CALL ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  lab::nccl::sweep();
  *id = lab::nccl::id_of(lab::nccl::new_name());
  return ncclSuccess;
}

NCCL_CALL ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                              ncclConfig_t* config) {
  return lab::nccl::in_group([&] { return lab::nccl::start(comm, size, id, rank, config); });
}
NCCL_CALL ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}
NCCL_CALL ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int ids,
                                                ncclUniqueId* all, ncclConfig_t* config) {
  if (ids < 1 || !all) return lab::nccl::refuse(ncclInvalidArgument, "ncclCommInitRankScalable: no id");
  return ncclCommInitRankConfig(comm, size, all[0], rank, config);
}
NCCL_CALL ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  using namespace lab::nccl;
  if (const auto error = check_size(count, 0)) return error;
  if (const auto error = check_devices_of_one_process(count, devices)) return error;
  return start_all(comms, count, devices);
}
