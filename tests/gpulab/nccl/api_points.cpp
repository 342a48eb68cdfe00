// Sends and receives, and what is made of them.
#include "lab.h"
#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/launch.h"
#include "nccl/numbers.h"

namespace lab::nccl {
namespace {

ncclResult_t begin(bool sends, void* data, size_t numbers, ncclDataType_t type, int peer, ncclComm_t handle,
                   cudaStream_t stream) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(sends ? "ncclSend" : "ncclRecv");
  if (const auto error = check_ready(*comm)) return error;
  if (type < 0 || type >= ncclNumTypes)
    return refuse(ncclInvalidArgument, formatted("invalid type %d", type));
  if (peer < 0 || peer >= comm->size)
    return refuse(ncclInvalidArgument,
                  formatted("invalid peer %d in a communicator of %d", peer, comm->size));
  if (numbers == 0) return ncclSuccess;
  if (const auto error = check_buffer(*comm, data)) return error;
  count("nccl");
  add(comm, stream, Point{sends, static_cast<char*>(data), numbers * size_of(type), type, peer});
  return ncclSuccess;
}

ncclResult_t call(bool sends, void* data, size_t numbers, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return in_group([&] { return begin(sends, data, numbers, type, peer, comm, stream); });
}

// The numbers that belong to each rank, one after the other.
class Blocks {
 public:
  Blocks(const void* data, size_t count, ncclDataType_t type)
      : data_(static_cast<char*>(const_cast<void*>(data))), bytes_(count * size_of(type)) {}
  void* of(int rank) const { return data_ + bytes_ * static_cast<size_t>(rank); }

 private:
  char* data_;
  size_t bytes_;
};

int size_of_comm(ncclComm_t handle) {
  const auto comm = find(handle);
  return comm ? comm->size : 0;
}
bool is_root(ncclComm_t handle, int root) {
  const auto comm = find(handle);
  return comm && comm->rank == root;
}

template <class Calls>
ncclResult_t all_of(ncclComm_t handle, const char* name, const Calls& calls) {
  if (!find(handle)) return refuse_handle(name);
  return in_group([&] {
    calls();
    return ncclSuccess;  // the errors are the group's
  });
}

}  // namespace
}  // namespace lab::nccl

NCCL_CALL ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                                ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call(true, const_cast<void*>(data), count, type, peer, comm, stream);
}
NCCL_CALL ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return lab::nccl::call(false, data, count, type, peer, comm, stream);
}

NCCL_CALL ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream) {
  const lab::nccl::Blocks sent(from, count, type), received(to, count, type);
  return lab::nccl::all_of(comm, "ncclAlltoAll", [&] {
    for (int peer = 0; peer < lab::nccl::size_of_comm(comm); ++peer) {
      ncclSend(sent.of(peer), count, type, peer, comm, stream);
      ncclRecv(received.of(peer), count, type, peer, comm, stream);
    }
  });
}
NCCL_CALL ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
  const lab::nccl::Blocks received(to, count, type);
  return lab::nccl::all_of(comm, "ncclGather", [&] {
    ncclSend(from, count, type, root, comm, stream);
    for (int peer = 0; lab::nccl::is_root(comm, root) && peer < lab::nccl::size_of_comm(comm); ++peer)
      ncclRecv(received.of(peer), count, type, peer, comm, stream);
  });
}
NCCL_CALL ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  const lab::nccl::Blocks sent(from, count, type);
  return lab::nccl::all_of(comm, "ncclScatter", [&] {
    ncclRecv(to, count, type, root, comm, stream);
    for (int peer = 0; lab::nccl::is_root(comm, root) && peer < lab::nccl::size_of_comm(comm); ++peer)
      ncclSend(sent.of(peer), count, type, peer, comm, stream);
  });
}
