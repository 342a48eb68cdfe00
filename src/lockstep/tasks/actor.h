#pragma once
// An actor: what a task has whose samples come from acting with the model, not from a data set.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// The model as it is now: observations [n, ...] in, its outputs [n, ...] out, float on the CPU, without
/// gradients.
using Policy = std::function<at::Tensor(const at::Tensor& observations)>;

/// Where an actor acts: one rank of those that learn together.
struct ActingRank {
  int rank = 0;
  int world = 1;
  /// In place, over all ranks; each calls it as often. Collective.
  std::function<void(std::vector<double>&)> sum = [](std::vector<double>&) {};
};

/// An episode that came to its end.
struct Episode {
  int64_t step = 0;  ///< of the round, when it ended
  double reward = 0;
};

/// What a round of acting brings.
struct Acted {
  at::Tensor inputs;   ///< [samples(), ...]
  at::Tensor targets;  ///< [samples(), ...]: whatever Task::loss wants to know of each
  std::vector<Episode> episodes;
  int64_t steps = 0;  ///< taken in the environments
};

/// The mean reward over so many episodes, the last ones of all ranks together, with which a run is done.
struct Goal {
  int64_t episodes = 100;
  double reward = 0;  ///< 0 = there is none
};

/// One object a run and rank, with environments of its own. A round of acting and then learning is an epoch.
class Actor {
 public:
  virtual ~Actor() = default;
  /// How many samples a round brings: the same number in each round and on every rank.
  virtual int64_t samples() const = 0;
  /// How often each of them is learned from before the next round.
  virtual int64_t passes() const { return 1; }
  /// One round. Collective where it sums over the ranks.
  virtual Acted act(const Policy& policy) = 0;
  /// All that the next round depends on besides the model: CPU tensors, of the same shapes on every rank.
  virtual std::vector<at::Tensor> state() const = 0;
  /// What state() gave. InputError, before anything is changed, where it is another actor's.
  virtual void restore(const std::vector<at::Tensor>& state) = 0;
  /// When a run has reached what it is for.
  virtual Goal goal() const { return {}; }
  /// For `eval`: whole episodes by the model's best guesses, `count` of them from number `first` on, and the
  /// reward of each. Whatever was acted before, a number stands for the same episode.
  virtual std::vector<double> play(const Policy& policy, int64_t first, int64_t count) const = 0;
};

}  // namespace lockstep
