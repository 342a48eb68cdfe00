#include "trainer/observe/ranges.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <string>

#include "lockstep/base/format.h"
#include "trainer/observe/traced_hook.h"

namespace lockstep::train {
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

}  // namespace lockstep::train
