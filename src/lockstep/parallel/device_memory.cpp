#include "lockstep/parallel/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace lockstep::parallel {

// What is held on the CPU, device by device. A tensor freed on any thread counts for the device that made it.
struct MemoryLedger {
  struct Block {
    size_t device;
    int64_t bytes;
  };
  std::mutex mutex;
  std::unordered_map<void*, Block> blocks;
  std::vector<int64_t> held, peaks;

  explicit MemoryLedger(size_t devices) : held(devices), peaks(devices) {}

  /// `bytes` is negative where the block is freed.
  void count(void* pointer, int64_t bytes, size_t device) {
    const std::lock_guard lock(mutex);
    const auto before = blocks.extract(pointer);  // a new block's too: freed on a thread that did not count
    if (!before.empty()) held[before.mapped().device] -= before.mapped().bytes;
    if (bytes <= 0) return;
    blocks[pointer] = {device, bytes};
    held[device] += bytes;
    peaks[device] = std::max(peaks[device], held[device]);
  }
};

namespace {

std::mutex current_mutex;
std::shared_ptr<MemoryLedger> current;  // of the newest DeviceMemory, while it lives

std::shared_ptr<MemoryLedger> current_ledger() {
  const std::lock_guard lock(current_mutex);
  return current;
}

class Reporter : public c10::MemoryReportingInfoBase {
 public:
  Reporter(std::shared_ptr<MemoryLedger> ledger, size_t device)
      : ledger_(std::move(ledger)), device_(device) {}

  void reportMemoryUsage(void* pointer, int64_t bytes, size_t, size_t, c10::Device where) override {
    if (where.is_cpu()) ledger_->count(pointer, bytes, device_);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  std::shared_ptr<MemoryLedger> ledger_;
  size_t device_;
};

// libtorch 2.7 has no such statistics outside of CUDA's own library: 0 there.
template <class Device>
int64_t peak_of(const Device& gpu) {
  if constexpr (requires { getDeviceAllocator(gpu.type())->getDeviceStats(gpu.index()); })
    return getDeviceAllocator(gpu.type())->getDeviceStats(gpu.index()).allocated_bytes[0].peak;
  else
    return 0;
}

template <class Device>
void restart_peak_of(const Device& gpu) {
  if constexpr (requires { getDeviceAllocator(gpu.type())->resetPeakStats(gpu.index()); })
    getDeviceAllocator(gpu.type())->resetPeakStats(gpu.index());
}

}  // namespace

DeviceMemoryScope::DeviceMemoryScope(size_t device) {
  auto ledger = current_ledger();
  if (ledger && device < ledger->held.size())
    guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(std::move(ledger), device));
}

DeviceMemory::DeviceMemory(std::vector<at::Device> devices)
    : devices_(std::move(devices)), ledger_(std::make_shared<MemoryLedger>(devices_.size())) {
  {
    const std::lock_guard lock(current_mutex);
    current = ledger_;
  }
  own_.emplace(0);
  restart();
}

DeviceMemory::~DeviceMemory() {
  const std::lock_guard lock(current_mutex);
  if (current == ledger_) current = nullptr;
}

std::vector<int64_t> DeviceMemory::peaks() const {
  const std::lock_guard lock(ledger_->mutex);
  auto peaks = ledger_->peaks;
  for (size_t i = 0; i < peaks.size(); ++i)
    if (!devices_[i].is_cpu()) peaks[i] = peak_of(devices_[i]);
  return peaks;
}

void DeviceMemory::restart() {
  const std::lock_guard lock(ledger_->mutex);
  ledger_->peaks = ledger_->held;
  for (const auto& device : devices_)
    if (!device.is_cpu()) restart_peak_of(device);
}

}  // namespace lockstep::parallel
