#pragma once
// A circle over a c10d store that somebody else holds: torchrun's agent.

#include <chrono>
#include <memory>

#include "comm/store.h"
#include "launch/circle.h"

namespace lockstep::comm {

/// The store's keys are this circle's alone.
std::unique_ptr<Circle> circle_over(StorePtr store, const Job& job, std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
