#pragma once
// A thread for each device of one process, kept from step to step: work runs on all of them at once, and what
// one throws is thrown again with the device named.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::parallel {

enum class Order { together, one_by_one };

class DeviceThreads {
 public:
  /// The calling thread's share of the cores is dealt out among them.
  explicit DeviceThreads(const std::vector<at::Device>& devices);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  /// work(0) to work(count - 1), each on its device's thread, in the caller's grad mode, autocast and debug
  /// state. Returns when all are done; then the first device's error is thrown.
  void run(size_t count, const std::function<void(size_t)>& work, Order order = Order::together);

 private:
  class Worker;
  std::vector<at::Device> devices_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// A tensor as that device gets it: a copy, between logical devices of one CPU, too.
at::Tensor sent(const at::Tensor& tensor, size_t index, at::Device device);

/// "device 1 of 2 (cpu)"
std::string name_of_device(size_t index, const std::vector<at::Device>& devices);

}  // namespace lockstep::parallel
