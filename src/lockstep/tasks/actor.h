#pragma once
// Actors: for reinforcement-learning tasks, whose samples come from environments.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// The current model: maps observations [n, ...] to outputs [n, ...], float on the CPU, without gradients.
using Policy = std::function<at::Tensor(const at::Tensor& observations)>;

/// The rank of an actor, and its sums.
struct ActorRank {
  int rank = 0;
  int world = 1;
  /// Sums in place over all ranks. Collective.
  std::function<void(std::vector<double>&)> sum = [](std::vector<double>&) {};
};

/// A finished episode.
struct Episode {
  int64_t step = 0;  ///< step of the rollout in which it ended
  double reward = 0;
};

/// The result of one rollout.
struct Rollout {
  at::Tensor inputs;   ///< [samples(), ...]
  at::Tensor targets;  ///< [samples(), ...]: for Task::loss
  std::vector<Episode> episodes;
  int64_t steps = 0;  ///< steps in the environments
};
/// Deprecated.
using ActingRank [[deprecated("use ActorRank")]] = ActorRank;
using Acted [[deprecated("use Rollout")]] = Rollout;

/// A run ends at this mean reward over the last episodes of all ranks.
struct Goal {
  int64_t episodes = 100;
  double reward = 0;  ///< 0 = none
};

/// One object per run and rank, with its own environments. An epoch is a rollout, then training on it.
class Actor {
 public:
  virtual ~Actor() = default;
  /// The number of samples in a rollout, the same each time and on every rank.
  virtual int64_t samples() const = 0;
  /// How often training uses each sample before the next rollout.
  virtual int64_t passes() const { return 1; }
  /// One rollout. Collective if it sums over the ranks.
  virtual Rollout act(const Policy& policy) = 0;
  /// Everything that the next rollout depends on besides the model: CPU tensors, with the same shapes on
  /// every rank.
  virtual std::vector<at::Tensor> state() const = 0;
  /// Restores state(). Throws InputError, before any change, if it is from another actor.
  virtual void restore(const std::vector<at::Tensor>& state) = 0;
  /// The reward that ends a run.
  virtual Goal goal() const { return {}; }
  /// For `eval`: the rewards of `count` episodes, from episode `first`, with the most likely actions. A
  /// number always refers to the same episode.
  virtual std::vector<double> play(const Policy& policy, int64_t first, int64_t count) const = 0;
};

}  // namespace lockstep
