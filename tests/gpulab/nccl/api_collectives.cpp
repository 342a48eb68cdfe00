// Collectives, as they are called.
#include <unistd.h>

#include <cstdio>

#include "lab.h"
#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/faults.h"
#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/launch.h"
#include "nccl/numbers.h"
#include "nccl/reductions.h"

namespace lab::nccl {
namespace {

struct Asked {
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

bool has_root(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce;
}

ncclResult_t check(const Comm& comm, const Asked& asked) {
  if (asked.type < 0 || asked.type >= ncclNumTypes)
    return refuse(ncclInvalidArgument, formatted("invalid type %d", asked.type));
  if (asked.root < 0 || asked.root >= comm.size)
    return refuse(ncclInvalidArgument,
                  formatted("invalid root %d (root should be in the 0..%d range)", asked.root, comm.size));
  const bool is_root = !has_root(asked.kind) || comm.rank == asked.root;
  if (asked.kind != Kind::broadcast || is_root)
    if (const auto error = check_buffer(comm, asked.from)) return error;
  return asked.kind != Kind::reduce || is_root ? check_buffer(comm, asked.to) : ncclSuccess;
}

void trace(const Comm& comm, const Asked& asked, long number) {
  if (!settings().trace) return;
  std::fprintf(stderr, "[gpulab %d] NCCL %s rank %d: collective %ld: %s of %zu %s\n", ::getpid(),
               comm.name.c_str(), comm.rank, number, name_of(asked.kind), asked.count, name_of(asked.type));
}

// A collective that is captured has its number when it runs.
ncclResult_t number_of(cudaStream_t stream, int device, long& number) {
  const AtDevice at(device);
  number = capturing(stream) ? 0 : next_collective();
  if (number == 0 || !strikes(Fault::error, number)) return ncclSuccess;
  return refuse(ncclSystemError, formatted("collective %ld fails, as asked", number));
}

ncclResult_t begin(const Asked& asked, ncclComm_t handle, cudaStream_t stream) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(name_of(asked.kind));
  if (const auto error = check_ready(*comm)) return error;
  if (asked.count == 0) return ncclSuccess;
  if (const auto error = check(*comm, asked)) return error;
  Collective collective{.kind = asked.kind,
                        .from = static_cast<const char*>(asked.from),
                        .to = static_cast<char*>(asked.to),
                        .count = asked.count,
                        .type = asked.type,
                        .reduction = {},
                        .root = asked.root,
                        .number = 0};
  if (const auto error = resolve(*comm, asked.op, asked.type, collective.reduction)) return error;
  if (const auto error = number_of(stream, comm->device, collective.number)) return error;
  trace(*comm, asked, collective.number);
  count("nccl");
  add(comm, stream, collective);
  return ncclSuccess;
}

ncclResult_t call(const Asked& asked, ncclComm_t comm, cudaStream_t stream) {
  return in_group([&] { return begin(asked, comm, stream); });
}

}  // namespace
}  // namespace lab::nccl

using lab::nccl::Kind;

NCCL_CALL ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call({Kind::all_reduce, from, to, count, type, op}, comm, stream);
}
NCCL_CALL ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call({Kind::broadcast, from, to, count, type, ncclSum, root}, comm, stream);
}
NCCL_CALL ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
NCCL_CALL ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call({Kind::reduce, from, to, count, type, op, root}, comm, stream);
}
NCCL_CALL ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                                     ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call({Kind::all_gather, from, to, count, type}, comm, stream);
}
NCCL_CALL ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return lab::nccl::call({Kind::reduce_scatter, from, to, count, type, op}, comm, stream);
}
