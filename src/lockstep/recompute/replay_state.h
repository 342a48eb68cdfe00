#pragma once
// What a computation depends on beside its inputs, as it was when it ran: random numbers and autocast.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

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

/// Autocast of the CPU and of some devices.
class AutocastState {
 public:
  static AutocastState of(const std::vector<at::Tensor>& tensors);
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
  bool caches_ = true;
};

/// As it was then, while it lives.
template <class State>
class PutBack {
 public:
  explicit PutBack(const State& then) : now_(then.now()) { then.put_back(); }
  ~PutBack() { now_.put_back(); }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  State now_;
};

/// What autocast keeps of weights while it lives is forgotten with it, as at the end of a scope of autocast.
class OwnCasts {
 public:
  OwnCasts();
  ~OwnCasts();
  OwnCasts(const OwnCasts&) = delete;
  OwnCasts& operator=(const OwnCasts&) = delete;
};

}  // namespace lockstep::recompute
