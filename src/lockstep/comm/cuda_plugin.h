#pragma once
// The CUDA half as a plug-in: liblockstep_cuda.so, loaded only where a GPU is asked for.

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

// Work of one device, recorded once and run again as a whole: a CUDA graph, which the plug-in makes.

class StepGraph {
 public:
  StepGraph() = default;
  virtual ~StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Records what `work` does on the device, without doing it; what it does on the host is done once, now.
  /// What was recorded before is forgotten. Work that has to wait for the device cannot be recorded: an
  /// Error.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Does it, in its turn on the device; the host does not wait.
  virtual void replay() = 0;
};

struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world = 1;
  int device = 0;
  std::chrono::milliseconds timeout{0};
  std::string name = "0";                // of the group, in NCCL's reports
  std::vector<std::uint64_t> members{};  // of a part of the job: its ranks by the job's numbers; empty: all
  // Called before each collective; and where one fails at once, for the error to throw in the place of
  // NCCL's.
  std::function<void(c10d::OpType)> begin = nullptr;
  std::function<std::exception_ptr(const std::string& what)> failed = nullptr;
};

/// What the plug-in offers; it exports one of these under kCudaTableSymbol.
struct CudaTable {
  int version = 0;
  int (*device_count)() = nullptr;
  std::string (*device_name)(int device) = nullptr;
  void (*set_device)(int device) = nullptr;
  void (*synchronize)(int device) = nullptr;
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const NcclRequest& request) = nullptr;
  /// From now on the calling thread works on a stream of its own, which alone can be captured.
  std::unique_ptr<StepGraph> (*make_step_graph)(int device) = nullptr;
  /// Of tensors, the most at once since the start; and what the device has.
  std::int64_t (*peak_bytes)(int device) = nullptr;
  std::int64_t (*total_bytes)(int device) = nullptr;
  /// Where this rank's record of its last collectives goes when one hangs; the first call counts, and a
  /// person's own choice (TORCH_FR_DUMP_TEMP_FILE) before it.
  void (*record_hangs_in)(const std::string& folder, int rank) = nullptr;
};

constexpr int kCudaTableVersion = 3;
constexpr const char* kCudaTableSymbol = "lockstep_cuda_table";

/// The plug-in, loaded now unless it already is (a library user links lockstep::cuda instead). To be called
/// before anything else of libtorch: what libtorch once believed about CUDA it keeps. Throws where the
/// plug-in is not there, does not load, or comes too late.
const CudaTable& cuda();

}  // namespace lockstep::comm
