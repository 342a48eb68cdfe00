#pragma once
// An exchange over a c10d store that somebody else holds: torchrun's agent.

#include <chrono>
#include <memory>

#include "lockstep/comm/meet/store.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::comm {

/// The store's keys are this exchange's alone.
std::unique_ptr<launch::TextExchange> exchange_over(StorePtr store, const Job& job,
                                                    std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
