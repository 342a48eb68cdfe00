#include "lockstep/train/node_share.h"

#include <random>

#include "lockstep/base/format.h"

namespace lockstep::train {

NodeShare node_share(const Team& team) {
  if (!team.group()) return {};
  const auto& job = team.job();
  // a name that differs between jobs: hosts and pids may be alike in containers
  std::random_device chance;
  const auto name = team.broadcast(format("{}-{:08x}{:08x}", job.host, chance(), chance()));
  return {.local_rank = job.local_rank,
          .local_world = job.local_world,
          .name = format("{}-{}", name, job.node_rank),
          .barrier = [&team] { team.barrier(); }};
}

}  // namespace lockstep::train
