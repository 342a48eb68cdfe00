#pragma once
// The job's store: made once the ranks have met, for the process groups to connect by.

#include <chrono>
#include <vector>

#include "lockstep/comm/meet/exchange.h"
#include "lockstep/comm/meet/network.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// A store that every rank of the job reaches, once they have met. Each call makes a new one. Collective.
StorePtr open_store(const launch::Runtime& runtime, std::chrono::milliseconds join_timeout);

/// Rank 0's, over TCP. The listener says at which address.
StorePtr serve_store(const std::string& address, Listener listener, std::chrono::milliseconds timeout);
/// The store at an address. Throws Error where nobody answers in time, or another service.
StorePtr connect_store(const Member& own, const std::string& host, std::uint16_t port,
                       std::chrono::milliseconds timeout);

/// Who and where everybody is, by rank; collective.
std::vector<Peer> introduce(const launch::Runtime& runtime);

/// The end of joining: a rank that left again at once would break those that are still connecting to it.
void wait_until_all_are_connected(const StorePtr& store, const Job& job,
                                  std::chrono::milliseconds join_timeout);

/// While ranks join, libtorch's own log is silent: a failure is reported once, by lockstep, and without call
/// stacks. LOCKSTEP_TRACE=1, or a TORCH_CPP_LOG_LEVEL that somebody chose, keeps it on.
class QuietJoin {
 public:
  QuietJoin();
  ~QuietJoin();
  QuietJoin(const QuietJoin&) = delete;
  QuietJoin& operator=(const QuietJoin&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::comm
