#pragma once
// The ranks' first meeting, the job's store, and the list of who has come.

#include <chrono>
#include <vector>

#include "lockstep/comm/meet/exchange.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// The ranks' first meeting, where there is no MPI. Collective; throws where a rank does not come.
std::unique_ptr<launch::TextExchange> open_exchange(const Job& job, std::chrono::milliseconds join_timeout);

/// The ranks' first meeting over MPI, which itself has no deadline: returns on every rank once all have come;
/// otherwise throws on every rank that came, naming those that did not.
void join_over_mpi(const launch::Runtime& runtime, std::chrono::milliseconds timeout);

/// The same exchange over another port, on the loopback where all ranks share a node; collective.
std::unique_ptr<launch::TextExchange> leave_port(const launch::Runtime& runtime,
                                                 std::chrono::milliseconds join_timeout);

/// A store that every rank of the job reaches, once they have met. Keys of different calls do not meet.
StorePtr open_store(const launch::Runtime& runtime, std::chrono::milliseconds join_timeout);

/// The store at an address. Throws InputError at once where another service answers, and Error where nobody
/// does.
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
