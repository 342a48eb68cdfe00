#include "lockstep/cuda/nccl.h"

#include <c10/cuda/CUDAFunctions.h>

#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::cuda {
namespace {

using c10d::ProcessGroupNCCL;

// Ends as Python's destroy_process_group() does; after an error it must not wait for peers that are gone.
class Nccl : public ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;
  ~Nccl() override {
    try {
      std::uncaught_exceptions() > 0 ? abort() : shutdown();
    } catch (const std::exception&) {
      // its own error has been reported where it happened
    }
  }
};

// ProcessGroupNCCL reads these when it is made. A person's own settings stand.
void set_defaults() {
  // a hang or a dead peer ends this process, and says why; without aborting NCCL first, which may hang itself
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 0);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", 0);
  ::setenv("TORCH_FR_BUFFER_SIZE", "2000", 0);  // the flight recorder that the dump is of
}

void require_device(const comm::NcclRequest& request) {
  const int count = c10::cuda::device_count();
  if (count == 0) {
    throw Error("NCCL needs a GPU, and this process sees none", format("rank {}", request.rank),
                "look at nvidia-smi and CUDA_VISIBLE_DEVICES on this node, or set launch.device to cpu");
  }
  if (request.device >= count) {
    throw Error(format("this rank wants GPU {}, and this process sees {}", request.device, count),
                format("rank {}", request.rank), "start as many ranks a node as it has GPUs");
  }
}

c10::intrusive_ptr<ProcessGroupNCCL::Options> options_for(const comm::NcclRequest& request) {
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  options->group_name = request.name;
  options->global_ranks_in_group = request.members;
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl(const comm::NcclRequest& request) {
  require_device(request);
  set_defaults();
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(request.device));
  try {
    auto backend =
        c10::make_intrusive<Nccl>(request.store, request.rank, request.world, options_for(request));
    // connects now, so that a network that does not work is an error here and not in the first step
    backend->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(request.device)));
    return backend;
  } catch (const std::exception& error) {
    throw Error(
        format("NCCL did not connect: {}", error.what()),
        format("rank {}, GPU {}", request.rank, request.device),
        "run again with NCCL_DEBUG=INFO to see what it tried; NCCL_SOCKET_IFNAME chooses its interface")
        .of(Code::nccl);
  }
}

}  // namespace lockstep::cuda
