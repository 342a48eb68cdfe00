#include "lockstep/cuda/step_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::cuda {
namespace {

class CudaStepGraph : public comm::StepGraph {
 public:
  void capture(const std::function<void()>& work) override {
    graph_.reset();  // its memory goes back before the next one needs as much
    // as torch.cuda.graph does: nothing is under way, and what the allocator keeps is there for the graph's
    // pool
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.emplace();
    try {
      // NCCL's watchdog asks for events in a thread of its own all the while: only this thread's calls may
      // spoil it
      graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      work();
      graph_->capture_end();
    } catch (const std::exception& error) {
      end_quietly();
      throw Error(format("the step could not be captured as a CUDA graph: {}", error.what()), "train.graph",
                  "what waits for the GPU inside a step (a copy to the CPU, item()) cannot be captured; set "
                  "train.graph to false");
    }
  }

  void replay() override { graph_->replay(); }

 private:
  // The stream is captured until it is told otherwise, and no error may hide the first one.
  void end_quietly() {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {
    }
    graph_.reset();
  }

  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<comm::StepGraph> make_step_graph(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  c10::cuda::device_synchronize();  // a stream of the pool does not wait for the default stream
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
  return std::make_unique<CudaStepGraph>();
}

}  // namespace lockstep::cuda
