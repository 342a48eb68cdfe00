#include "lockstep/parallel/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace lockstep::parallel {
namespace {

// What is held on the CPU, device by device. A tensor is freed on any thread, and by then counts for whoever
// made it.
class Ledger {
 public:
  explicit Ledger(size_t devices) : held_(devices), peaks_(devices) {}

  void allocated(void* pointer, int64_t bytes, size_t device) {
    const std::lock_guard lock(mutex_);
    forget(pointer);  // freed where nobody counted
    blocks_[pointer] = {device, bytes};
    held_[device] += bytes;
    peaks_[device] = std::max(peaks_[device], held_[device]);
  }
  void freed(void* pointer) {
    const std::lock_guard lock(mutex_);
    forget(pointer);
  }
  void restart() {
    const std::lock_guard lock(mutex_);
    peaks_ = held_;
  }
  std::vector<int64_t> peaks() const {
    const std::lock_guard lock(mutex_);
    return peaks_;
  }
  size_t devices() const { return held_.size(); }

 private:
  struct Block {
    size_t device;
    int64_t bytes;
  };
  void forget(void* pointer) {
    const auto block = blocks_.extract(pointer);
    if (!block.empty()) held_[block.mapped().device] -= block.mapped().bytes;
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::vector<int64_t> held_, peaks_;
};

class Reporter : public c10::MemoryReportingInfoBase {
 public:
  Reporter(std::shared_ptr<Ledger> ledger, size_t device) : ledger_(std::move(ledger)), device_(device) {}

  void reportMemoryUsage(void* pointer, int64_t bytes, size_t, size_t, c10::Device where) override {
    if (!where.is_cpu()) return;
    if (bytes > 0)
      ledger_->allocated(pointer, bytes, device_);
    else
      ledger_->freed(pointer);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  std::shared_ptr<Ledger> ledger_;
  size_t device_;
};

// libtorch 2.7 does not tell on this side of CUDA: 0 there.
template <class Device>
int64_t peak_of(const Device& gpu) {
  if constexpr (requires { getDeviceAllocator(gpu.type())->getDeviceStats(gpu.index()); }) {
    return getDeviceAllocator(gpu.type())->getDeviceStats(gpu.index()).allocated_bytes[0].peak;
  } else {
    return 0;
  }
}

template <class Device>
void restart_peak_of(const Device& gpu) {
  if constexpr (requires { getDeviceAllocator(gpu.type())->resetPeakStats(gpu.index()); })
    getDeviceAllocator(gpu.type())->resetPeakStats(gpu.index());
}

std::mutex counting_mutex;
std::shared_ptr<Ledger> counting;  // the ledger in use

std::shared_ptr<Ledger> current_ledger() {
  const std::lock_guard lock(counting_mutex);
  return counting;
}

}  // namespace

struct CountedFor::Scope {
  Scope(std::shared_ptr<Ledger> ledger, size_t device)
      : guard(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(std::move(ledger), device)) {}
  c10::DebugInfoGuard guard;
};

CountedFor::CountedFor(size_t device) {
  if (auto ledger = current_ledger(); ledger && device < ledger->devices())
    scope_ = std::make_unique<Scope>(std::move(ledger), device);
}

CountedFor::~CountedFor() = default;

struct DeviceMemory::State {
  std::vector<at::Device> devices;
  std::shared_ptr<Ledger> ledger;
  std::unique_ptr<CountedFor> own;
};

DeviceMemory::DeviceMemory(std::vector<at::Device> devices) : state_(std::make_unique<State>()) {
  state_->devices = std::move(devices);
  state_->ledger = std::make_shared<Ledger>(state_->devices.size());
  {
    const std::lock_guard lock(counting_mutex);
    counting = state_->ledger;
  }
  state_->own = std::make_unique<CountedFor>(0);
  restart();
}

DeviceMemory::~DeviceMemory() {
  const std::lock_guard lock(counting_mutex);
  counting = nullptr;
}

std::vector<int64_t> DeviceMemory::peaks() const {
  auto peaks = state_->ledger->peaks();
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (!state_->devices[i].is_cpu()) peaks[i] = peak_of(state_->devices[i]);
  }
  return peaks;
}

void DeviceMemory::restart() {
  state_->ledger->restart();
  for (const auto& device : state_->devices) {
    if (!device.is_cpu()) restart_peak_of(device);
  }
}

}  // namespace lockstep::parallel
