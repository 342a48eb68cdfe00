#pragma once
// The job's store, opened as the rendezvous says, and the list of who has come.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <vector>

#include "comm/peers.h"
#include "launch/runtime.h"

namespace lockstep::comm {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// A store that every rank of the job reaches. Keys of different calls do not meet.
StorePtr open_store(const Runtime& runtime, std::chrono::milliseconds join_timeout);

/// Says "I am here" and waits for everybody; throws naming the ranks that did not come.
std::vector<Peer> meet(c10d::Store& store, const Runtime& runtime, std::chrono::milliseconds join_timeout);

/// The end of joining: a rank that left again at once would break those that are still connecting to it.
void wait_until_all_are_connected(c10d::Store& store, const Job& job, std::chrono::milliseconds join_timeout);

}  // namespace lockstep::comm
