// The optimiser that a config names, from the table of optimisers.
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/plugins/tables.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params) {
  return make_optimizer({{std::move(params), settings}});
}

std::unique_ptr<Optimizer> make_optimizer(const OptimGroups& groups) {
  const auto& name = groups.at(0).options.name;
  const auto& row = base::require<OptimizerRow>("optimiser", name, "optim.name");
  if (row.make_groups) return base::made(row.make_groups(groups), "optimiser", name, "optim.name");
  if (groups.size() > 1)
    throw InputError(
        format("the optimiser {} has one group of parameters, and optim.no_decay makes two", name),
        "optim.no_decay", "leave it out, or take sgd, adam or adamw");
  return base::made(row.make(groups[0].options, groups[0].params), "optimiser", name, "optim.name");
}

}  // namespace lockstep
