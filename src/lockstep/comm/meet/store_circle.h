#pragma once
// A circle over a c10d store that somebody else holds: torchrun's agent.

#include <chrono>
#include <memory>

#include "lockstep/comm/meet/store.h"
#include "lockstep/launch/process/circle.h"

namespace lockstep::comm {

/// The store's keys are this circle's alone.
std::unique_ptr<launch::Circle> circle_over(StorePtr store, const Job& job,
                                            std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
