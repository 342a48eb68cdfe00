// The optimiser that a config names, shared.
#include "lockstep/zero/sharded_optimizer.h"

namespace lockstep {

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimSettings& settings,
                                                  std::vector<at::Tensor> params, const Team& team) {
  return make_sharded_optimizer({{std::move(params), settings}}, team);
}

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimGroups& groups, const Team& team) {
  if (team.world() == 1) return make_optimizer(groups);
  std::vector<std::vector<at::Tensor>> params;
  for (const auto& group : groups) params.push_back(group.params);
  const auto make = [&groups](const std::vector<std::vector<at::Tensor>>& of) {
    auto own = groups;
    for (size_t i = 0; i < own.size(); ++i) own[i].params = of[i];
    return make_optimizer(own);
  };
  return std::make_unique<ShardedOptimizer>(make, params, team);
}

}  // namespace lockstep
