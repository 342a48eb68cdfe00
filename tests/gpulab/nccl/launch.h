#pragma once
// An operation of a communicator as work on a stream.
#include <nccl.h>

#include <functional>

#include "nccl/comm.h"

namespace lab::nccl {

using Operation = std::function<void(Comm&)>;

/// It runs when its stream and its communicator get there, and ends without result when the communicator is
/// aborted.
ncclResult_t launch(const CommPtr& comm, cudaStream_t stream, Operation operation);

/// Whether the communicator can take an operation.
ncclResult_t check_ready(Comm& comm);
/// A buffer must be in the memory of the communicator's device.
ncclResult_t check_buffer(const Comm& comm, const void* buffer);

/// While it lives, the calling thread is at that device.
class AtDevice {
 public:
  explicit AtDevice(int device);
  ~AtDevice();
  AtDevice(const AtDevice&) = delete;
  AtDevice& operator=(const AtDevice&) = delete;

 private:
  int before_ = 0;
};

}  // namespace lab::nccl
