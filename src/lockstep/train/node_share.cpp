#include "lockstep/train/node_share.h"

#include <chrono>
#include <exception>
#include <optional>
#include <random>

#include "lockstep/base/format.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/alarm.h"

namespace lockstep::train {

namespace {

// No limit of ours: files may be large. A rank that dies meanwhile is still an error.
void await_load(const Team& team) {
  if (team.world() == 1) return;
  const auto group = team.group();
  c10d::BarrierOptions options;
  options.timeout = std::chrono::hours(24 * 30);
  std::optional<launch::StallWatch> deaths;  // which NCCL notices by its timeout alone
  if (team.device().is_cuda()) {
    deaths.emplace(launch::StallWatch::Limits{options.timeout, [group] { return comm::misses_rank(group); }},
                   [group, limit = options.timeout] {
                     std::rethrow_exception(comm::judge_stall(group, "loading the data", limit));
                   });
    deaths->sign();
  }
  group->barrier(options)->wait();
}

}  // namespace

NodeShare node_share(const Team& team) {
  if (!team.group()) return {};
  const auto& job = team.job();
  // a name that differs between jobs: hosts and pids may be alike in containers
  std::random_device chance;
  const auto name = team.broadcast(format("{}-{:08x}{:08x}", job.host, chance(), chance()));
  return {.local_rank = job.local_rank,
          .local_world = job.local_world,
          .name = format("{}-{}", name, job.node_rank),
          .barrier = [&team] { team.barrier(); },
          .await_load = [&team] { await_load(team); }};
}

}  // namespace lockstep::train
