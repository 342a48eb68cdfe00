#include "course/workshop/judges/one_model.h"

#include "lockstep/base/format.h"

namespace lockstep::workshop {

bool agree(double is, double wanted) {
  return workshop::near(is, wanted, 1e-5);
}

bool agree(const std::vector<double>& is, const std::vector<double>& wanted) {
  if (is.size() != wanted.size()) return false;
  for (size_t i = 0; i < is.size(); ++i) {
    if (!agree(is[i], wanted[i])) return false;
  }
  return true;
}

void require_one_model(const Run& run, const std::string& name) {
  const auto& first = run.ranks.front().numbers(name);
  for (const auto& rank : run.ranks) {
    if (agree(rank.numbers(name), first)) continue;
    throw NotYet(format("with {} ranks, {} is {} on rank 0 and {} on rank {}: each trains a model of its own",
                        run.ranks.size(), name, shown(first), shown(rank.numbers(name)), rank.rank()),
                 "who averages the gradients? forward() must be called on what ddp() returned");
  }
}

}  // namespace lockstep::workshop
