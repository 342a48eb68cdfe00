#pragma once
// The CUDA plug-in, liblockstep_cuda.so, which lockstep loads only if the device is a GPU.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::comm {

// A CUDA graph: work of one device, recorded once and replayed as a whole.

class StepGraph {
 public:
  StepGraph() = default;
  virtual ~StepGraph() = default;
  StepGraph(StepGraph&&) = delete;

  /// Records the device work of `work` without running it; its host work runs now. Replaces the previous
  /// recording. Error if the work waits for the device, which cannot be recorded.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Queues the recorded work on the device and returns.
  virtual void replay() = 0;
};

struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world = 1;
  int device = 0;
  std::chrono::milliseconds timeout{0};
  std::string name = "0";                // the group's, in NCCL's reports
  std::vector<std::uint64_t> members{};  // for a part of the job: its ranks in the job; empty: all
  // Called before each collective. If a collective fails at once, failed() returns the error to throw.
  std::function<void(c10d::OpType)> begin = nullptr;
  std::function<std::exception_ptr(const std::string& what)> failed = nullptr;
};

/// The functions of the plug-in, which exports one table as kCudaTableSymbol.
struct CudaTable {
  int version = 0;
  int (*device_count)() = nullptr;
  std::string (*device_name)(int device) = nullptr;
  void (*set_device)(int device) = nullptr;
  void (*synchronize)(int device) = nullptr;
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const NcclRequest& request) = nullptr;
  /// From now on the calling thread uses its own stream: only such a stream can be captured.
  std::unique_ptr<StepGraph> (*make_step_graph)(int device) = nullptr;
  /// The peak memory of tensors since the start; the memory of the device.
  std::int64_t (*peak_bytes)(int device) = nullptr;
  std::int64_t (*total_bytes)(int device) = nullptr;
  /// Sets the folder for the record of this rank's last collectives when one hangs. Only the first call
  /// counts. TORCH_FR_DUMP_TEMP_FILE takes precedence.
  void (*record_hangs_in)(const std::string& folder, int rank) = nullptr;
};

constexpr int kCudaTableVersion = 3;
constexpr const char* kCudaTableSymbol = "lockstep_cuda_table";

/// Loads the plug-in unless it is loaded (library users link lockstep::cuda). Call it before any other use of
/// libtorch, which caches what it finds out about CUDA. Throws if the plug-in is missing, cannot be loaded,
/// or is loaded too late.
const CudaTable& cuda();

}  // namespace lockstep::comm
