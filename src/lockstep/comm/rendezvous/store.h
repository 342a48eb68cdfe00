#pragma once
// The job's store, which process groups use to connect after the ranks have met.

#include <chrono>
#include <vector>

#include "lockstep/comm/rendezvous/exchange.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/comm/rendezvous/peers.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// Collective, after the ranks have met: a new store that every rank of the job can reach.
StorePtr open_store(const launch::Runtime& runtime, std::chrono::milliseconds join_timeout);

/// Rank 0's store over TCP, at the address of the listener.
StorePtr serve_store(const std::string& address, Listener listener, std::chrono::milliseconds timeout);
/// The store at an address. Throws Error if no service or another service answers within the timeout.
StorePtr connect_store(const Member& own, const std::string& host, std::uint16_t port,
                       std::chrono::milliseconds timeout);

/// Collective: all ranks of the job.
std::vector<Peer> introduce(const launch::Runtime& runtime);

/// The end of joining. If a rank left earlier, ranks that still connect to it would fail.
void wait_until_all_are_connected(const StorePtr& store, const Job& job,
                                  std::chrono::milliseconds join_timeout);

/// Disables libtorch's own log while ranks join: lockstep reports a failure once and without call stacks.
/// With LOCKSTEP_TRACE=1 or TORCH_CPP_LOG_LEVEL the log stays on.
class QuietJoin {
 public:
  QuietJoin();
  ~QuietJoin();
  QuietJoin(QuietJoin&&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::comm
