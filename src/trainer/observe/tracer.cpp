#include "trainer/observe/tracer.h"

#include <torch/csrc/profiler/stubs/base.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/python_scalar.h"

namespace lockstep::train {

// Without a hook the Reducer multiplies by one over the world's size, and so do we: with three ranks a
// division has other bits (reducer.cpp, mark_variable_ready_dense).
CommHook mean_as_without(const ProcessGroup& group) {
  const auto call = [group](GradBucket& bucket) {
    return hooks::all_reduce(group, bucket.buffer().mul_(base::python_scalar(1.0 / group->getSize())));
  };
  return {call, HookMemory{}};
}

CommHook traced(CommHook hook, const ProcessGroup& group, std::shared_ptr<Tracer> tracer) {
  if (!hook) hook = mean_as_without(group);
  const auto call = [hook, tracer = std::move(tracer)](GradBucket& bucket) {
    Span span = {tracer->now(),        0,
                 tracer->step(),       static_cast<int64_t>(bucket.buffer().nbytes()),
                 SpanKind::all_reduce, static_cast<int16_t>(bucket.index())};
    return hooks::then(hook(bucket), [tracer, span](at::Tensor reduced) mutable {
      span.end = tracer->now();
      tracer->add(span);
      return reduced;
    });
  };
  return {call, hook};
}

namespace {

void push(const std::string& name) {
  torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
}
void pop() {
  torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace

void Ranges::close(int left) {
  for (; open_ > left; --open_) pop();
}

void Ranges::begin_step(int64_t number, const char* phase) {
  leave();
  push(format("step {}", number));
  open_ = 1;
  enter(phase);
}

void Ranges::enter(const char* phase) {
  if (open_ == 0) return;
  close(1);
  push(phase);
  open_ = 2;
}

void Ranges::leave() {
  close(0);
}

CommHook ranged(CommHook hook, const ProcessGroup& group) {
  if (!hook) hook = mean_as_without(group);
  const auto call = [hook](GradBucket& bucket) {
    push(format("all-reduce of bucket {}", bucket.index()));
    auto future = hook(bucket);
    pop();
    return future;
  };
  return {call, hook};
}

const char* name_of(SpanKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(SpanKind::count)> kNames = {
      "data",       "forward",    "backward",  "waiting for communication", "optimiser", "other",
      "evaluation", "checkpoint", "all-reduce"};
  return kNames[static_cast<size_t>(kind)];
}

void Tracer::add(const Span& span) noexcept {
  const std::lock_guard lock(mutex_);
  ring_[next_] = span;
  if (++next_ < ring_.size()) return;
  next_ = 0;
  full_ = true;
}

std::vector<Span> Tracer::spans() const {
  const std::lock_guard lock(mutex_);
  const auto middle = ring_.begin() + static_cast<int64_t>(next_);
  std::vector<Span> kept;
  if (full_) kept.assign(middle, ring_.end());
  kept.insert(kept.end(), ring_.begin(), middle);
  const int64_t first = step() - steps_ + 1;
  std::erase_if(kept, [first](const Span& span) { return span.step < first; });
  return kept;
}

}  // namespace lockstep::train
