#include "lockstep/parallel/ddp_state.h"

#include <ATen/core/grad_mode.h>
#include <limits>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace lockstep {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;

// How c10d calls a CommHook.
class HookAdaptor : public c10d::CppCommHookInterface<CommHook> {
 public:
  using c10d::CppCommHookInterface<CommHook>::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    GradBucket view(bucket);
    return state_(view);
  }
};

}  // namespace

void DdpCore::State::make_reducer(parallel::Buckets buckets) {
  auto made = parallel::make_reducer(parameters, group, options, *module, std::move(buckets));
  logger = std::move(made.logger);
  reducer = std::move(made.reducer);
  delayed = std::make_shared<parallel::DelayedAllReduce>(parallel::DelayedAllReduce{.reducer = reducer});
  if (hook) install_hook();
  parallel::share_buckets(*reducer, group);
  if (!is_timed) stop_timing();
}

void DdpCore::State::rebuild_buckets() {
  if (reducer->rebuild_buckets()) parallel::share_buckets(*reducer, group);
}

void DdpCore::State::stop_timing() {
  is_timed = false;
  reducer->set_ddp_runtime_logging_sample_rate(std::numeric_limits<int>::max());
}

void DdpCore::State::install_hook() {
  logger->set_comm_hook(hook_name);
  reducer->register_comm_hook(std::make_unique<HookAdaptor>(hook));
}

void DdpCore::State::list_buffers() {
  buffers = parallel::tensors_of(parallel::unique_buffers(*module, options.ignore));
}

void DdpCore::State::broadcast_module(int from, bool with_buffers) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> states;
  for (const auto& [name, parameter] : parallel::unique_parameters(*module, options.ignore))
    states.push_back(parameter.detach());
  if (with_buffers)
    for (const auto& buffer : buffers) states.push_back(buffer.detach());
  if (!states.empty()) c10d::broadcast_coalesced(group, states, kBroadcastBytes, from);
}

void DdpCore::State::broadcast_buffers(int from) {
  at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(group, buffers, kBroadcastBytes, from);
}

void DdpCore::State::forget_step() {
  // what a static graph learned from half a first iteration cannot be taken back: begin again
  if (options.static_graph) return make_reducer();
  reducer->reset_state();
}

}  // namespace lockstep
