#include "trainer/observe/traced_hook.h"

#include <torch/types.h>

#include <utility>

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

}  // namespace lockstep::train
