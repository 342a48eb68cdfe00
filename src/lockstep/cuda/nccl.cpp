#include "lockstep/cuda/nccl.h"

#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::cuda {
namespace {

using c10d::ProcessGroupNCCL;

constexpr std::chrono::milliseconds kEnd{2000};  // the cause of an error is still unsaid

// Counts what it is called for, so that a hang names the rank that did not come. Ends as Python's
// destroy_process_group() does; after an error it must not wait for peers that are gone.
class Nccl : public ProcessGroupNCCL {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  Nccl(const comm::NcclRequest& request, const c10::intrusive_ptr<Options>& options)
      : ProcessGroupNCCL(request.store, request.rank, request.world, options),
        device_(request.device),
        begin_(request.begin),
        failed_(request.failed) {}
  ~Nccl() override {
    try {
      if (std::uncaught_exceptions() == 0) {
        shutdown();
      } else {
        getOptions()->timeout = std::min(getOptions()->timeout, kEnd);  // for so long abort() waits
        abort();
      }
    } catch (const std::exception&) {
      // its own error has been reported where it happened
    }
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return counted(c10d::OpType::BROADCAST, [&] { return ProcessGroupNCCL::broadcast(tensors, options); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return counted(c10d::OpType::ALLREDUCE, [&] { return ProcessGroupNCCL::allreduce(tensors, options); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return counted(c10d::OpType::ALLREDUCE_COALESCED,
                   [&] { return ProcessGroupNCCL::allreduce_coalesced(tensors, options); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return counted(c10d::OpType::REDUCE, [&] { return ProcessGroupNCCL::reduce(tensors, options); });
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return counted(c10d::OpType::ALLGATHER,
                   [&] { return ProcessGroupNCCL::allgather(outputs, inputs, options); });
  }
  // A group that is bound to no device would guess one by its rank, and open a communicator there that other
  // ranks may not join.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    auto there = options;
    if (there.device_ids.empty()) there.device_ids = {device_};
    // a barrier's own timeout, which libtorch's does not look at
    const auto usual = getOptions()->timeout;
    const std::shared_ptr<void> restored(nullptr, [&](void*) { getOptions()->timeout = usual; });
    if (options.timeout != c10d::kUnsetTimeout) getOptions()->timeout = options.timeout;
    return counted(c10d::OpType::BARRIER, [&] { return ProcessGroupNCCL::barrier(there); });
  }

 private:
  template <class Call>
  WorkPtr counted(c10d::OpType type, const Call& call) const {
    if (begin_) begin_(type);
    try {
      return call();
    } catch (const c10::DistBackendError& error) {
      if (failed_) std::rethrow_exception(failed_(error.what_without_backtrace()));
      throw;
    }
  }

  int64_t device_;  // the rank's own, which has a communicator from the start
  std::function<void(c10d::OpType)> begin_;
  std::function<std::exception_ptr(const std::string&)> failed_;
};

// ProcessGroupNCCL reads these when it is made. A person's own settings stand.
void set_defaults() {
  // a hang or a dead peer ends this process, and says why; without aborting NCCL first, which may hang itself
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 0);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", 0);
  ::setenv("TORCH_FR_BUFFER_SIZE", "2000", 0);  // the flight recorder that the dump is of
  // How long a process waits, four times over, for its own dump and the others': at 15 s, libtorch's default,
  // a hang ended a minute after its timeout.
  ::setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "500", 0);
}

class RecordOfHangs : public c10d::DebugInfoWriter {
 public:
  RecordOfHangs(const std::string& folder, int rank)
      : DebugInfoWriter(folder + "/nccl_trace_rank_", rank) {}  // as Python's torchfrtrace looks for them
};

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

void record_hangs_in(const std::string& folder, int rank) {
  for (const char* chosen : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})
    if (std::getenv(chosen)) return;
  static std::once_flag once;  // libtorch takes one, and says an error of each other
  std::call_once(
      once, [&] { c10d::DebugInfoWriter::registerWriter(std::make_unique<RecordOfHangs>(folder, rank)); });
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const comm::NcclRequest& request) {
  require_device(request);
  set_defaults();
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(request.device));
  try {
    auto backend = c10::make_intrusive<Nccl>(request, options_for(request));
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
