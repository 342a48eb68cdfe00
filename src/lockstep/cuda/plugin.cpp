// The CUDA plug-in: NCCL's process group, a training step as a CUDA graph, and the device, behind the table
// that comm/cuda_plugin.h describes.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/cuda/nccl_headers.h"

namespace lockstep::cuda {
namespace {

using c10d::ProcessGroupNCCL;

constexpr std::chrono::milliseconds kEnd{2000};  // to report the cause of an error

// Counts its collectives, so that a hang names the missing rank. Its destructor does what Python's
// destroy_process_group() does; after an error it must not wait for peers that have exited.
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
        getOptions()->timeout = std::min(getOptions()->timeout, kEnd);  // abort() waits this long
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
  // Without a device id libtorch would open a communicator on one that it guesses, which others may not join.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    auto there = options;
    if (there.device_ids.empty()) there.device_ids = {device_};
    // libtorch ignores a barrier's own timeout
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

// ProcessGroupNCCL reads these in its constructor. The user's own settings stay.
void set_defaults() {
  // a hang or a dead peer ends this process with an error; aborting NCCL first could hang
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 0);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", 0);
  ::setenv("TORCH_FR_BUFFER_SIZE", "2000", 0);  // the flight recorder that the dump is of
  // A process waits four times this long for its own dump and the others': with libtorch's default, 15 s, a
  // hang ended a minute after its timeout.
  ::setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "500", 0);
}

class HangRecorder : public c10d::DebugInfoWriter {
 public:
  HangRecorder(const std::string& folder, int rank)
      : DebugInfoWriter(folder + "/nccl_trace_rank_", rank) {}  // as Python's torchfrtrace looks for them
};

void require_device(const comm::NcclRequest& request) {
  const int count = c10::cuda::device_count();
  if (count == 0) {
    throw Error("NCCL needs a GPU, and this process sees none", format("rank {}", request.rank),
                "check nvidia-smi and CUDA_VISIBLE_DEVICES on this node, or set launch.device to cpu");
  }
  if (request.device >= count) {
    throw Error(format("this rank needs GPU {}, but this process sees {}", request.device, count),
                format("rank {}", request.rank), "start one rank for each GPU of a node");
  }
}

c10::intrusive_ptr<ProcessGroupNCCL::Options> options_for(const comm::NcclRequest& request) {
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  options->group_name = request.name;
  options->global_ranks_in_group = request.members;
  return options;
}

void record_hangs_in(const std::string& folder, int rank) {
  for (const char* chosen : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})
    if (std::getenv(chosen)) return;
  static std::once_flag once;  // libtorch accepts only one
  std::call_once(
      once, [&] { c10d::DebugInfoWriter::registerWriter(std::make_unique<HangRecorder>(folder, rank)); });
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const comm::NcclRequest& request) {
  require_device(request);
  set_defaults();
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(request.device));
  try {
    auto backend = c10::make_intrusive<Nccl>(request, options_for(request));
    // connect now, so that a broken network is an error here and not in the first step
    backend->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(request.device)));
    return backend;
  } catch (const std::exception& error) {
    throw Error(format("NCCL did not connect: {}", error.what()),
                format("rank {}, GPU {}", request.rank, request.device),
                "run again with NCCL_DEBUG=INFO to see what it tried, or choose its interface with "
                "NCCL_SOCKET_IFNAME")
        .of(Code::nccl);
  }
}

class CudaStepGraph : public comm::StepGraph {
 public:
  void capture(const std::function<void()>& work) override {
    graph_.reset();  // frees its memory before the next graph needs it
    // as torch.cuda.graph does: no work is running, and the allocator's cache is free for the graph's pool
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.emplace();
    try {
      // NCCL's watchdog thread queries events meanwhile: only calls of this thread may invalidate the capture
      graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      work();
      graph_->capture_end();
    } catch (const std::exception& error) {
      end_quietly();
      throw Error(
          format("the step could not be captured as a CUDA graph: {}", error.what()), "train.graph",
          "remove what waits for the GPU inside a step (a copy to the CPU, item()), or set train.graph to "
          "false");
    }
  }

  void replay() override { graph_->replay(); }

 private:
  // Ends the capture of the stream. An error of that must not hide the first one.
  void end_quietly() {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {
    }
    graph_.reset();
  }

  std::optional<at::cuda::CUDAGraph> graph_;
};

std::unique_ptr<comm::StepGraph> make_step_graph(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  c10::cuda::device_synchronize();  // a stream of the pool does not wait for the default stream
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
  return std::make_unique<CudaStepGraph>();
}

NcclHeaders own_headers() {
  return {NCCL_VERSION_CODE, sizeof(ncclConfig_t)};
}

// The constructor is in libtorch's library and stores the NCCL_CONFIG_INITIALIZER of its headers. Its object
// may be larger than this file's type, and is never destroyed.
NcclHeaders libtorchs_headers() {
  using Options = ProcessGroupNCCL::Options;
  constexpr size_t kRoom = sizeof(Options) + 4096;
  static unsigned char* room =
      static_cast<unsigned char*>(::operator new (kRoom, std::align_val_t{alignof(Options)}));
  static const auto* options = new (room) Options();
  return {static_cast<int>(options->config.version), options->config.size};
}

int device_count() {
  return c10::cuda::device_count();
}

std::string device_name(int device) {
  cudaDeviceProp facts{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&facts, device));
  return facts.name;
}

void set_device(int device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

void synchronize(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  c10::cuda::device_synchronize();
}

std::int64_t peak_bytes(int device) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  return allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device))
      .allocated_bytes[0]
      .peak;  // of all kinds
}

std::int64_t total_bytes(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(total);
}

const comm::CudaTable kTable = {.version = comm::kCudaTableVersion,
                                .device_count = device_count,
                                .device_name = device_name,
                                .set_device = set_device,
                                .synchronize = synchronize,
                                .make_nccl = make_nccl,
                                .make_step_graph = make_step_graph,
                                .peak_bytes = peak_bytes,
                                .total_bytes = total_bytes,
                                .record_hangs_in = record_hangs_in};

}  // namespace
}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::comm::CudaTable* lockstep_cuda_table() {
  lockstep::cuda::require_same(lockstep::cuda::own_headers(), lockstep::cuda::libtorchs_headers());
  return &lockstep::cuda::kTable;
}
