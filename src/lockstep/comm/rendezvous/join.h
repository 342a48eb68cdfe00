#pragma once
// The ranks of a job find each other, which of them share a node, and whether all have the same settings.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/rendezvous/exchange.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// The settings of this rank, by the names that users know. Ranks with different facts must not train
/// together.
using Facts = std::vector<std::pair<std::string, std::string>>;
constexpr const char* kJobIdFact = "job id";  // may be empty on a rank that does not know it
constexpr const char* kVersionFact = "lockstep's version";

/// Where the ranks of a job meet without MPI. It depends only on the environment and the job; lockstep never
/// guesses a port.
enum class RendezvousKind {
  agent,    // torchrun's agent has a store at host:port
  local,    // all ranks are on one machine: rank 0 has a store at `path`
  address,  // rank 0 listens at host:port
  file,     // rank 0 listens at a port that the kernel chooses, and writes it to `path`
};
struct Rendezvous {
  RendezvousKind kind = RendezvousKind::local;
  std::string host = {};     // agent, address
  std::uint16_t port = 0;    // agent, address
  std::string path = {};     // local, file
  std::string prefix = {};   // separates the keys of a restarted job from those of the first attempt
  std::string because = {};  // the reason, for the log
};
/// Throws InputError if the environment is incomplete or the port is invalid.
Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job);

/// Collective. Call it once, before a device is chosen. Afterwards the runtime's exchanges and its job's
/// layout are valid on all ranks, which belong to one job and have one version. Otherwise it throws on every
/// rank that came: an InputError if the facts differ.
void join_ranks(launch::Runtime& runtime, std::chrono::milliseconds timeout);

/// The same in a store that all ranks have and in which they may join more than once. Returns the part of it
/// that no other joining uses.
StorePtr join_in(launch::Runtime& runtime, const StorePtr& store, std::chrono::milliseconds timeout);

/// Rank 0's answer to all ranks' texts, on every rank. Throws Error if a rank does not come in time.
std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text,
                          const std::function<std::string(const std::vector<std::string>& texts)>& answer,
                          std::chrono::milliseconds timeout);

/// Collective, after join_ranks(). If the facts differ, throws the same InputError on every rank, which names
/// the difference and the ranks. An Error from `facts` on one rank is thrown on all.
void agree(const launch::Runtime& runtime, const std::function<Facts()>& facts);

/// Collective. NCCL rejects two ranks on one GPU later, with a less clear error. With
/// NCCL_MULTI_RANK_GPU_ENABLE=1 on rank 0 only NCCL decides. `own` is empty if this rank uses no GPU.
void refuse_shared_gpus(const launch::Runtime& runtime, const std::vector<launch::GpuIdentity>& own);

/// Which facts differ, and on which ranks, as an error message; empty if they are the same.
std::string difference(const std::vector<Facts>& facts);

}  // namespace lockstep::comm
