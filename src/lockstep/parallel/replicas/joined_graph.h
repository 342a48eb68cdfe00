#pragma once
// Where the graphs of a process's devices become one: outputs are gathered on the first device, and in the
// backward each device computes its own gradients on its own thread.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "lockstep/parallel/replicas/device_threads.h"
#include "lockstep/parallel/replicas/replicas.h"

namespace lockstep::parallel {

/// What one device has done in a forward.
struct DeviceShare {
  std::vector<at::Tensor> given;       // its part of the inputs, as they came
  std::vector<at::Tensor> inputs;      // the same, at the beginning of a graph of its own
  std::vector<Replicas::Leaf> leaves;  // its replica's parameters
  std::vector<at::Tensor> outputs;     // at its end
};

struct Gathered {
  std::vector<at::Tensor> outputs;
  std::weak_ptr<void> pending;  // while it lives, a backward may come
};

/// The devices' outputs one behind the other, on the first device; numbers without dimensions become a row of
/// them. A gradient that comes back is dealt out to the devices; what they find for a parameter is summed in
/// the order of the devices.
Gathered gather(std::vector<DeviceShare> shares, const std::vector<at::Tensor>& sources,
                std::shared_ptr<DeviceThreads> threads, const std::vector<at::Device>& devices);

}  // namespace lockstep::parallel
