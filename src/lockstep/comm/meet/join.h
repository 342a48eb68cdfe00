#pragma once
// The ranks of a job meet: they find out who shares a node, and that they were all told to do the same.

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/device.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// What this rank was told to do, by the names that a person knows. Two ranks that differ in one must not
/// train together.
using Facts = std::vector<std::pair<std::string, std::string>>;
constexpr const char* kJobIdFact = "job id";  // may be empty on a rank that was not told
constexpr const char* kVersionFact = "lockstep's version";

/// Collective, to be called once, before a device is chosen: where it returns, the runtime's exchanges and
/// its job's layout hold for all ranks, which are of one job and one version. Otherwise it throws on every
/// rank that came, an InputError where the ranks were told different things.
void join_ranks(launch::Runtime& runtime, std::chrono::milliseconds timeout);

/// The ranks' first meeting over MPI, which itself has no deadline: returns on every rank once all have come;
/// otherwise throws on every rank that came, naming those that did not.
void join_over_mpi(const launch::Runtime& runtime, std::chrono::milliseconds timeout);

/// What rank 0 makes of all ranks' texts, on every rank. Throws Error where one does not come in time.
std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text,
                          const std::function<std::string(const std::vector<std::string>& texts)>& answer,
                          std::chrono::milliseconds timeout);

/// Collective, once the ranks have met. Throws the same InputError on every rank where their facts differ,
/// naming what differs and on which rank; an Error of `tell` on one rank is thrown on all.
void agree(const launch::Runtime& runtime, const std::function<Facts()>& tell);

/// Collective: NCCL refuses two ranks on one GPU, but only later and in other words; rank 0's
/// NCCL_MULTI_RANK_GPU_ENABLE=1 leaves it to NCCL. `own` is empty where this rank computes on no GPU.
void refuse_shared_gpus(const launch::Runtime& runtime, const std::vector<launch::GpuIdentity>& own);

/// Which fact differs, and on which rank, as an error says it; empty where they are all the same.
std::string difference(const std::vector<Facts>& facts);

}  // namespace lockstep::comm
