// Collectives, sends and receives, as they are called. What is called between ncclGroupStart and ncclGroupEnd
// begins at its end, together; a call outside is a group of one.
#include <algorithm>
#include <utility>

#include "lab.h"
#include "nccl/operations.h"

namespace lab::nccl {
namespace {

using Operation = std::function<void(Comm&)>;

// Its place in the communicator's row; given back even where a stream that failed never runs it.
class Place {
 public:
  explicit Place(CommPtr comm) : comm_(std::move(comm)), turn_(comm_->turns.take()) {}
  ~Place() { comm_->turns.give_back(turn_); }
  Place(Place&&) = delete;
  bool begin() { return comm_->turns.begin(turn_); }

 private:
  CommPtr comm_;
  std::uint64_t turn_;
};

void run_begun(Comm& comm, const Operation& operation) {
  try {
    operation(comm);
  } catch (const Aborted&) {
  }
  comm.turns.end();
}

Work once(const CommPtr& comm, Operation operation) {
  auto place = std::make_shared<Place>(comm);
  return [comm, place, operation = std::move(operation)]() mutable {
    pause();
    if (place->begin()) run_begun(*comm, operation);
    place.reset();
  };
}

// Each replay of a graph runs it, between what the host begins.
Work repeated(const CommPtr& comm, Operation operation) {
  return [comm, operation = std::move(operation)] {
    pause();
    if (comm->turns.begin_between()) run_begun(*comm, operation);
  };
}

/// While it lives, the calling thread is at that device.
class AtDevice {
 public:
  explicit AtDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~AtDevice() { cudaSetDevice(before_); }
  AtDevice(AtDevice&&) = delete;

 private:
  int before_ = 0;
};

/// It runs when its stream and its communicator get there, and ends without result if that is aborted.
ncclResult_t launch(const CommPtr& comm, cudaStream_t stream, Operation operation) {
  const AtDevice device(comm->device);
  auto work = capturing(stream) ? repeated(comm, std::move(operation)) : once(comm, std::move(operation));
  const auto error = enqueue(stream, std::move(work), "NCCL");
  if (error == cudaSuccess) return ncclSuccess;
  return refuse(ncclUnhandledCudaError, formatted("Cuda failure %d '%s'", error, cudaGetErrorString(error)));
}

struct Begun {
  CommPtr comm;
  cudaStream_t stream;
  std::vector<Point> points;  // all of this communicator and stream, or none and a collective
  Collective collective;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Begun> all;
};
thread_local Group group;

ncclResult_t end_group() {
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  auto error = ended.error;
  for (const Begun& begun : ended.all) {
    if (error != ncclSuccess) break;
    error = begun.points.empty()
                ? launch(begun.comm, begun.stream, [what = begun.collective](Comm& comm) { run(comm, what); })
                : launch(begun.comm, begun.stream, [what = begun.points](Comm& comm) { run(comm, what); });
  }
  return error;
}

/// Runs the call inside a group; its error is that of the group too.
template <class Call>
ncclResult_t in_group(const Call& call) {
  ++group.depth;
  const auto error = call();
  if (group.error == ncclSuccess) group.error = error;
  const auto result = end_group();
  return error != ncclSuccess ? error : result;
}

ncclResult_t check_buffer(const Comm& comm, const void* buffer) {
  const int device = device_of(buffer);
  if (device == comm.device) return ncclSuccess;
  const auto text =
      formatted("a buffer (%p, of device %d) is not in the memory of the communicator's device (%d)", buffer,
                device, comm.device);
  say("NCCL: %s", text.c_str());
  return refuse(ncclInvalidArgument, text);
}

ncclResult_t check(const Comm& comm, ncclDataType_t type, int peer) {
  if (comm.is_aborted()) return refuse(ncclInvalidUsage, "the communicator has been aborted");
  if (size_of(type) == 0) return refuse(ncclInvalidArgument, formatted("invalid type %d", type));
  if (peer >= 0 && peer < comm.size) return ncclSuccess;
  return refuse(ncclInvalidArgument,
                formatted("invalid root or peer %d in a communicator of %d", peer, comm.size));
}

ncclResult_t check_buffers(const Comm& comm, const Collective& asked) {
  const bool has_root = asked.kind == Kind::broadcast || asked.kind == Kind::reduce;
  const bool is_root = !has_root || comm.rank == asked.root;
  if (asked.kind != Kind::broadcast || is_root)
    if (const auto error = check_buffer(comm, asked.from)) return error;
  return asked.kind != Kind::reduce || is_root ? check_buffer(comm, asked.to) : ncclSuccess;
}

ncclResult_t begin_collective(Collective asked, ncclComm_t handle, cudaStream_t stream) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(name_of(asked.kind));
  if (const auto error = check(*comm, asked.type, asked.root)) return error;
  if (asked.op < 0 || asked.op >= ncclNumOps)
    return refuse(ncclInvalidArgument, formatted("reduction operation %d is unknown", asked.op));
  if (asked.count == 0) return ncclSuccess;
  if (const auto error = check_buffers(*comm, asked)) return error;
  const AtDevice at(comm->device);
  asked.number =
      capturing(stream) ? 0 : next_collective();  // one that is captured has its number when it runs
  if (asked.number != 0 && strikes(Fault::error, asked.number))
    return refuse(ncclSystemError, formatted("collective %ld fails, as asked", asked.number));
  group.all.push_back({comm, stream, {}, asked});
  return ncclSuccess;
}

ncclResult_t begin_point(const Point& point, ncclDataType_t type, ncclComm_t handle, cudaStream_t stream) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(point.sends ? "ncclSend" : "ncclRecv");
  if (const auto error = check(*comm, type, point.peer)) return error;
  if (point.bytes == 0) return ncclSuccess;
  if (const auto error = check_buffer(*comm, point.data)) return error;
  auto same = std::find_if(group.all.begin(), group.all.end(), [&](const Begun& one) {
    return one.comm == comm && one.stream == stream && !one.points.empty();
  });
  if (same == group.all.end()) same = group.all.insert(same, {comm, stream, {}, {}});
  same->points.push_back(point);
  return ncclSuccess;
}

ncclResult_t call(Kind kind, const void* from, void* to, std::size_t count, ncclDataType_t type,
                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const Collective asked{kind, static_cast<const char*>(from), static_cast<char*>(to), count, type, op, root,
                         0};
  return in_group([&] { return begin_collective(asked, comm, stream); });
}

ncclResult_t call(bool sends, void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  const Point point{sends, static_cast<char*>(data), count * size_of(type), peer};
  return in_group([&] { return begin_point(point, type, comm, stream); });
}

}  // namespace
}  // namespace lab::nccl

using namespace lab::nccl;

NCCL_CALL ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
NCCL_CALL ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  return end_group();
}

NCCL_CALL ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(Kind::all_reduce, from, to, count, type, op, 0, comm, stream);
}
NCCL_CALL ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return call(Kind::broadcast, from, to, count, type, ncclSum, root, comm, stream);
}
NCCL_CALL ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
NCCL_CALL ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(Kind::reduce, from, to, count, type, op, root, comm, stream);
}
NCCL_CALL ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                                     ncclComm_t comm, cudaStream_t stream) {
  return call(Kind::all_gather, from, to, count, type, ncclSum, 0, comm, stream);
}
NCCL_CALL ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(Kind::reduce_scatter, from, to, count, type, op, 0, comm, stream);
}
NCCL_CALL ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                                ncclComm_t comm, cudaStream_t stream) {
  return call(true, const_cast<void*>(data), count, type, peer, comm, stream);
}
NCCL_CALL ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return call(false, data, count, type, peer, comm, stream);
}
