#pragma once
// Texts between the ranks of a job over a c10d store, and the check that the ranks belong together.

#include <sys/types.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/files/file.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// A rank as it presents itself to the others.
struct Member {
  int rank = 0;
  int world = 1;
  std::string host = {};
  std::string job_id = {};  // empty if this rank does not know it
  uid_t user = ::geteuid();
  pid_t pid = ::getpid();
  std::uint64_t pid_space = base::own_namespace("pid");  // where the pid means this process
};
Member member_of(const Job& job);
/// The place of an error: "rank 2 of 4 on host a"
std::string place_of(const Member& member);

struct ExchangeOptions {
  std::chrono::milliseconds timeout{60'000};  // for all ranks to come, and for each exchange after that
  std::string address = {};                   // rank 0's, as the others reach it, or empty
  bool serves = false;                        // the store ends with this process
  bool one_machine = false;                   // all ranks are on it: a killed one is noticed
};

/// No other exchange may use the store's keys.
std::unique_ptr<launch::TextExchange> exchange_over(StorePtr store, const Member& own,
                                                    const ExchangeOptions& options);

/// The same, after all ranks have come. Throws on every rank that came if a rank is missing or has another
/// world size, and on a rank that belongs to another job or user or comes twice.
std::unique_ptr<launch::TextExchange> join_over(StorePtr store, const Member& own,
                                                const ExchangeOptions& options);

}  // namespace lockstep::comm
