#include "nccl/launch.h"

#include "lab.h"
#include "nccl/errors.h"

namespace lab::nccl {
namespace {

// Its place in the communicator's row; given back even where a stream that failed never runs it.
class Place {
 public:
  explicit Place(CommPtr comm) : comm_(std::move(comm)), turn_(comm_->turns.take()) {}
  ~Place() { comm_->turns.give_back(turn_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool begin() { return comm_->turns.begin(turn_); }

 private:
  CommPtr comm_;
  std::uint64_t turn_;
};

void run_begun(Comm& comm, const Operation& operation) {
  try {
    operation(comm);
  } catch (const Aborted&) {
  } catch (...) {
    comm.turns.end();
    throw;
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

}  // namespace

AtDevice::AtDevice(int device) {
  cudaGetDevice(&before_);
  cudaSetDevice(device);
}
AtDevice::~AtDevice() {
  cudaSetDevice(before_);
}

ncclResult_t launch(const CommPtr& comm, cudaStream_t stream, Operation operation) {
  const AtDevice device(comm->device);
  auto work = capturing(stream) ? repeated(comm, std::move(operation)) : once(comm, std::move(operation));
  const auto error = enqueue(stream, std::move(work), "NCCL");
  if (error == cudaSuccess) return ncclSuccess;
  return refuse(ncclUnhandledCudaError, formatted("Cuda failure %d '%s'", error, cudaGetErrorString(error)));
}

ncclResult_t check_ready(Comm& comm) {
  if (comm.is_aborted()) return refuse(ncclInvalidUsage, "the communicator has been aborted");
  if (comm.revoked) return refuse(ncclInvalidUsage, "the communicator has been revoked");
  if (comm.suspended) return refuse(ncclInvalidUsage, "the communicator is suspended");
  if (comm.progress == ncclInProgress)
    return refuse(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned ncclSuccess");
  return static_cast<ncclResult_t>(comm.progress.load());  // a meeting that failed
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

}  // namespace lab::nccl
