#pragma once
// How much memory each device of one process held at most: a GPU as its allocator counts, a logical device of
// the CPU by what its thread allocates.

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::parallel {

/// Counts while it lives; one at a time. The thread that makes it counts for device 0.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::vector<at::Device> devices);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// The most bytes of tensors at once, a device, since the start or the last restart().
  std::vector<int64_t> peaks() const;
  /// From what is held now.
  void restart();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// While it lives, what this thread allocates on the CPU counts for a device; nothing where nobody counts.
class CountedFor {
 public:
  explicit CountedFor(size_t device);
  ~CountedFor();
  CountedFor(const CountedFor&) = delete;
  CountedFor& operator=(const CountedFor&) = delete;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

}  // namespace lockstep::parallel
