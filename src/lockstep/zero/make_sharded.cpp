// The optimiser that a config names, shared.
#include "lockstep/zero/sharded_optimizer.h"

namespace lockstep {

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimSettings& settings,
                                                  std::vector<at::Tensor> params, const Team& team) {
  if (team.world() == 1) return make_optimizer(settings, std::move(params));
  const auto make = [&settings](const std::vector<std::vector<at::Tensor>>& groups) {
    return make_optimizer(settings, groups.at(0));
  };
  const std::vector<std::vector<at::Tensor>> groups{std::move(params)};
  return std::make_unique<ShardedOptimizer>(make, groups, team);
}

}  // namespace lockstep
