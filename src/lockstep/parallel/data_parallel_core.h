#pragma once
// What DataParallel does around a forward pass, whatever the module's type: the part without templates.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Every GPU that this process sees; on a CPU two logical devices, each a thread with a replica of its own.
std::vector<c10::Device> visible_devices();

/// The first `count` GPUs where `first` is one, else `count` logical devices of the CPU; 0 =
/// visible_devices() of that kind. InputError where there are fewer.
std::vector<c10::Device> devices_like(c10::Device first, int count);

/// DataParallel without its module's type; made and called by it.
class DataParallelCore {
 public:
  /// Makes one more module like it, for a device.
  using MakeReplica = std::function<std::shared_ptr<torch::nn::Module>(c10::Device)>;
  /// A device's forward: its replica, and its part of the tensors.
  using Forward = std::function<std::vector<at::Tensor>(size_t device, torch::nn::Module& replica,
                                                        const std::vector<at::Tensor>& inputs)>;

  DataParallelCore(std::shared_ptr<torch::nn::Module> module, std::vector<c10::Device> devices,
                   const MakeReplica& make);
  ~DataParallelCore();
  DataParallelCore(const DataParallelCore&) = delete;
  DataParallelCore& operator=(const DataParallelCore&) = delete;

  /// As they were given.
  const std::vector<c10::Device>& devices() const;
  /// [device][tensor]: each tensor in chunks along its first dimension, as Python's; fewer than there are
  /// devices where the batch is small. A number without dimensions goes to all.
  std::vector<std::vector<at::Tensor>> scatter(const std::vector<at::Tensor>& whole) const;
  /// Replicates, runs `forward` on each device that has a share, and gathers on the first device.
  std::vector<at::Tensor> run(std::vector<std::vector<at::Tensor>> shares, const Forward& forward);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
