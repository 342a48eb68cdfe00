// The optimiser that a config names, from the table of optimisers.
#include "lockstep/base/tables.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params) {
  const auto& row = base::require<OptimizerRow>("optimiser", settings.name, "optim.name");
  return base::made(row.make(settings, std::move(params)), "optimiser", settings.name, "optim.name");
}

}  // namespace lockstep
