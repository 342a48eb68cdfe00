#include "lockstep/recompute/replay_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <mutex>
#include <set>

namespace lockstep::recompute {

void GeneratorStates::add(const at::Generator& generator) {
  auto asked = generator;
  const std::lock_guard lock(asked.mutex());
  states_.emplace_back(generator, asked.get_state());
}

GeneratorStates GeneratorStates::of(const std::vector<at::Tensor>& tensors) {
  GeneratorStates states;
  states.add(at::globalContext().defaultGenerator(at::kCPU));
  std::set<at::DeviceIndex> seen;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda() || !seen.insert(tensor.device().index()).second) continue;
    states.add(at::globalContext().defaultGenerator(tensor.device()));
  }
  return states;
}

GeneratorStates GeneratorStates::now() const {
  GeneratorStates states;
  for (const auto& [generator, state] : states_) states.add(generator);
  return states;
}

void GeneratorStates::put_back() const {
  for (const auto& [generator, state] : states_) {
    auto asked = generator;
    const std::lock_guard lock(asked.mutex());
    asked.set_state(state);
  }
}

// variable_data(): autograd may have kept a buffer, and need not hear of this.
BufferStates BufferStates::of(const std::shared_ptr<torch::nn::Module>& module) {
  BufferStates states;
  if (!module) return states;
  for (const auto& buffer : module->buffers())
    if (buffer.defined()) states.kept_.emplace_back(buffer, buffer.variable_data().clone());
  return states;
}

void BufferStates::put_back() const {
  for (const auto& [buffer, kept] : kept_) buffer.variable_data().copy_(kept);
}

AutocastState::Device AutocastState::of(at::DeviceType type) {
  return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

AutocastState AutocastState::of(const std::vector<at::Tensor>& tensors) {
  AutocastState state;
  state.devices_.push_back(of(at::kCPU));
  const auto on_gpu = [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); };
  if (std::any_of(tensors.begin(), tensors.end(), on_gpu)) state.devices_.push_back(of(at::kCUDA));
  return state;
}

AutocastState AutocastState::now() const {
  AutocastState state;
  for (const auto& device : devices_) state.devices_.push_back(of(device.type));
  state.caches_ = at::autocast::is_autocast_cache_enabled();
  return state;
}

void AutocastState::put_back() const {
  for (const auto& device : devices_) {
    at::autocast::set_autocast_enabled(device.type, device.enabled);
    at::autocast::set_autocast_dtype(device.type, device.dtype);
  }
  at::autocast::set_autocast_cache_enabled(caches_);
}

}  // namespace lockstep::recompute
