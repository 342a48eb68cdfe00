#pragma once
// How much memory each device of one process held at most: a GPU as its allocator counts, a logical device of
// the CPU by what its thread allocates.

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::parallel {

struct MemoryLedger;

/// While it lives, what this thread allocates on the CPU counts for a device of the DeviceMemory that lives
/// now; nothing without one.
class DeviceMemoryScope {
 public:
  explicit DeviceMemoryScope(size_t device);

 private:
  std::optional<c10::DebugInfoGuard> guard_;
};

/// Counts while it lives, or until another one is made. The thread that makes it counts for device 0.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::vector<at::Device> devices);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) = delete;

  /// The most bytes of tensors at once, for each device, since the start or the last restart().
  std::vector<int64_t> peaks() const;
  /// From what is held now.
  void restart();

 private:
  const std::vector<at::Device> devices_;
  const std::shared_ptr<MemoryLedger> ledger_;
  std::optional<DeviceMemoryScope> own_;
};

}  // namespace lockstep::parallel
