#pragma once
// When each bucket of gradients was on its way, without a bit of difference to the sums.

#include <memory>

#include "lockstep/parallel/comm_hook.h"
#include "trainer/observe/tracer.h"

namespace lockstep::train {

/// What DDP does where it has no hook.
CommHook mean_as_without(const ProcessGroup& group);

/// `hook`, or the mean that DDP takes without one, with a span a bucket: from when it was full to when its
/// sum was there.
CommHook traced(CommHook hook, const ProcessGroup& group, std::shared_ptr<Tracer> tracer);

}  // namespace lockstep::train
