#pragma once
// Actors, for tasks with samples from acting with the model, not from a data set.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// The current model: observations [n, ...] in, outputs [n, ...] out, float on the CPU, without gradients.
using Policy = std::function<at::Tensor(const at::Tensor& observations)>;

/// The rank of an actor.
struct ActorRank {
  int rank = 0;
  int world = 1;
  /// In place, over all ranks. Collective.
  std::function<void(std::vector<double>&)> sum = [](std::vector<double>&) {};
};

/// A finished episode.
struct Episode {
  int64_t step = 0;  ///< of the round, when it ended
  double reward = 0;
};

/// The result of a round.
struct Rollout {
  at::Tensor inputs;   ///< [samples(), ...]
  at::Tensor targets;  ///< [samples(), ...]: for Task::loss
  std::vector<Episode> episodes;
  int64_t steps = 0;  ///< in the environments
};
/// Deprecated.
using ActingRank [[deprecated("use ActorRank")]] = ActorRank;
using Acted [[deprecated("use Rollout")]] = Rollout;

/// The mean reward over the last episodes of all ranks that ends a run.
struct Goal {
  int64_t episodes = 100;
  double reward = 0;  ///< 0 = none
};

/// One object per run and rank, with its own environments. A round of acting, then learning, is an epoch.
class Actor {
 public:
  virtual ~Actor() = default;
  /// The number of samples in a round, the same in each round and on every rank.
  virtual int64_t samples() const = 0;
  /// How often the model learns from each sample before the next round.
  virtual int64_t passes() const { return 1; }
  /// One round. Collective if it sums over the ranks.
  virtual Rollout act(const Policy& policy) = 0;
  /// Everything that the next round depends on besides the model: CPU tensors, with the same shapes on every
  /// rank.
  virtual std::vector<at::Tensor> state() const = 0;
  /// From state(). InputError, before any change, if it is another actor's.
  virtual void restore(const std::vector<at::Tensor>& state) = 0;
  /// The reward that ends a run.
  virtual Goal goal() const { return {}; }
  /// For `eval`: the rewards of `count` episodes from number `first` on, with the most likely actions. A
  /// number always means the same episode.
  virtual std::vector<double> play(const Policy& policy, int64_t first, int64_t count) const = 0;
};

}  // namespace lockstep
