#pragma once
// gloo on CPU: PyTorch's own backend, with its interface chosen and checked.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/connect.h"
#include "lockstep/comm/rendezvous/store.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// Throws if gloo would bind an address that other ranks cannot reach. Call it before other ranks wait.
void check_gloo_interface(const Job& job);

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const Job& job,
                                            const LaunchOptions& settings,
                                            std::shared_ptr<PeerMonitor> monitor);

}  // namespace lockstep::comm
