#pragma once
// The ranks' first meeting, the job's store, and the list of who has come.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <vector>

#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The ranks' first meeting, where there is no MPI. Collective; throws where a rank does not come.
std::unique_ptr<launch::TextExchange> open_exchange(const Job& job, std::chrono::milliseconds join_timeout);

/// A store that every rank of the job reaches, once they have met. Keys of different calls do not meet.
StorePtr open_store(const launch::Runtime& runtime, std::chrono::milliseconds join_timeout);

/// Who and where everybody is, by rank; collective.
std::vector<Peer> introduce(const launch::Runtime& runtime);

/// The end of joining: a rank that left again at once would break those that are still connecting to it.
void wait_until_all_are_connected(c10d::Store& store, const Job& job, std::chrono::milliseconds join_timeout);

}  // namespace lockstep::comm
