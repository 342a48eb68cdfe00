#pragma once
// ZeRO stage 1: ranks with the same parameters divide the optimizer's state; same results, bit for bit.

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

/// An optimizer whose state the ranks divide: each updates its part and then receives the others' updates. A
/// checkpoint has the plain optimizer's state, so a run resumes with or without sharding, and at another
/// world size. step(), state_dict() and load_state_dict() are collective. The gradients must be the same on
/// all ranks, as after DDP.
class ShardedOptimizer : public Optimizer {
 public:
  /// Creates an optimizer over these groups of parameters, each with that group's options.
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<std::vector<at::Tensor>>& groups)>;

  /// Divides the parameters evenly. Throws InputError if the optimizer is not elementwise().
  ShardedOptimizer(const Make& make, const std::vector<std::vector<at::Tensor>>& groups, const Team& team);
  ~ShardedOptimizer() override;

  void step() override;
  Tree state_dict() const override;
  void load_state_dict(const Tree& state) override;
  double momentum(size_t group) const override;
  void set_momentum(double momentum, size_t group) override;
  bool has_betas() const override;
  /// The size of this rank's part.
  int64_t state_bytes(size_t index) const override;

 protected:
  void update(const std::vector<Slot>& slots, size_t group) override;
  Tree state_of(size_t index) const override;
  void set_state_of(size_t index, const Tree& state) override;
  std::vector<std::pair<Tree, Tree>> options_of(size_t group) const override;
  void set_options_of(size_t group, const Tree& options) override;

 private:
  struct Share;
  ShardedOptimizer(const Make& make, std::unique_ptr<Optimizer> plain, const Team& team);
  std::unique_ptr<Optimizer> make_own(const Make& make) const;
  void refuse_misfits(size_t index, const Tree& state) const;
  Tree whole_state(const std::vector<Tree>& held, size_t index) const;

  std::unique_ptr<Share> share_;
};

/// An optimizer over groups of parameters, divided over the team's ranks; the plain one if the team has one
/// rank. `make` creates an optimizer over such groups.
template <class Options, class MakeOptimizer>
std::unique_ptr<Optimizer> sharded_with(const MakeOptimizer& make,
                                        const std::vector<ParameterGroup<Options>>& groups,
                                        const Team& team) {
  if (team.world() == 1) return make(groups);
  std::vector<std::vector<at::Tensor>> params;
  for (const auto& group : groups) params.push_back(group.params);
  const auto over = [&](const std::vector<std::vector<at::Tensor>>& of) {
    auto own = groups;
    for (size_t i = 0; i < own.size(); ++i) own[i].params = of[i];
    return make(own);
  };
  return std::make_unique<ShardedOptimizer>(over, params, team);
}
/// The same for a class of optimizers.
template <class O>
std::unique_ptr<Optimizer> sharded(const std::vector<ParameterGroup<typename O::Options>>& groups,
                                   const Team& team) {
  return sharded_with([](const auto& own) { return std::make_unique<O>(own); }, groups, team);
}
/// The same over the session's ranks.
template <class O>
std::unique_ptr<Optimizer> sharded(const std::vector<ParameterGroup<typename O::Options>>& groups,
                                   const Session& session) {
  return sharded<O>(groups, session.team());
}
/// The same over one group.
template <class O>
std::unique_ptr<Optimizer> sharded(std::vector<at::Tensor> params, const Session& session,
                                   const typename O::Options& options) {
  return sharded<O>({{std::move(params), options}}, session.team());
}

/// The optimizer that a config names, divided over the team; the plain one if the team has one rank.
std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimGroups& groups, const Team& team);

}  // namespace lockstep
