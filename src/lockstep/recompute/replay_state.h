#pragma once
// What a computation depends on beside its inputs, as it was when it ran: random numbers, buffers and
// autocast.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::recompute {

/// The state of some generators.
class GeneratorStates {
 public:
  /// The CPU's, and those of the devices where these tensors are.
  static GeneratorStates of(const std::vector<at::Tensor>& tensors);
  /// Of the same generators, as they are now.
  GeneratorStates now() const;
  void put_back() const;

 private:
  void add(const at::Generator& generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// The values of some buffers, such as BatchNorm's statistics.
class BufferStates {
 public:
  /// A module's; none without one.
  static BufferStates of(const std::shared_ptr<torch::nn::Module>& module);
  void put_back() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

/// Autocast of the CPU and of some devices. Put back, it keeps no casts of weights: those are the whole
/// process's, and another thread may be within a forward.
class AutocastState {
 public:
  static AutocastState of(const std::vector<at::Tensor>& tensors);
  /// As it is now, whether it keeps casts included.
  AutocastState now() const;
  void put_back() const;

 private:
  struct Device {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
  };
  static Device of(at::DeviceType type);
  std::vector<Device> devices_;
  bool caches_ = false;
};

/// Puts a state back when told, and at its end at the latest: there it drops errors, since the one that is
/// on its way says more.
template <class State>
class PutBack {
 public:
  explicit PutBack(State state) : state_(std::move(state)) {}
  ~PutBack() {
    try {
      put_back();
    } catch (...) {
    }
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

  void put_back() {
    if (!std::exchange(done_, true)) state_.put_back();
  }

 private:
  const State state_;
  bool done_ = false;
};

}  // namespace lockstep::recompute
