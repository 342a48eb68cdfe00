#pragma once
// A pole on a cart that is pushed left or right: CartPole-v1 as Gymnasium has it (Barto, Sutton and Anderson,
// 1983), state for state.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/tasks/actor.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

// Random numbers of which each environment has its own: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014),
// whose whole state is one number.

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state = 0) : state_(state) {}
  /// The stream of this number under this seed. Of one seed no two numbers begin alike: each step is a
  /// one-to-one map.
  SplitMix64(uint64_t seed, uint64_t number) : state_(mixed(mixed(seed + kStep) + number)) {}

  uint64_t next() { return mixed(state_ += kStep); }
  /// From 0 to below 1.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  uint64_t state() const { return state_; }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  static constexpr uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

class CartPole {
 public:
  static constexpr int64_t kNumbers = 4;      // of an observation
  static constexpr int64_t kMostSteps = 500;  // of an episode

  /// Position, speed, angle and angular speed.
  using State = std::array<double, kNumbers>;

  struct End {
    bool fell = false;     // or left the track: nothing more is to be had
    bool time_up = false;  // more would be to be had
    explicit operator bool() const { return fell || time_up; }
  };

  /// Each number from -0.05 to 0.05.
  void reset(SplitMix64& random);
  void set(const State& state, int64_t steps) {
    state_ = state;
    steps_ = steps;
  }
  /// Pushes once, to the right or to the left: worth 1, whatever comes of it.
  End step(bool right);

  const State& state() const { return state_; }
  /// So far, which is its reward, too.
  int64_t steps() const { return steps_; }
  void observe(float* into) const;

 private:
  State state_{};
  int64_t steps_ = 0;
};

// How a policy learns from what it did: PPO (Schulman et al., arXiv:1707.06347), or the plain policy gradient
// with a baseline (Williams, 1992). A sample's target is packed: see Packed.

/// `task.options`; what `method` does not say otherwise is PPO's.
struct PolicyMethod {
  bool clips = true;          // PPO
  int64_t environments = 16;  // of a rank
  int64_t steps = 128;        // of each, a round
  int64_t passes = 4;         // over a round's samples; plain: 1
  double gamma = 0.99;        // what a reward is worth one step later
  double lambda = 0.95;       // of the advantages; plain: 1
  double clip = 0.2;
  double entropy = 0.01;  // its weight in the loss
  double value = 0.5;     // the baseline's
  double solved = 475;    // mean reward over 100 episodes; 0 = goes on
};

/// InputError for nonsense.
PolicyMethod policy_method(const RowOptions& options);

/// The columns of a target.
struct Packed {
  enum Column : int64_t { action, advantage, value, log_probability, columns };
};

/// `output`: a logit an action, and the value last.
at::Tensor policy_loss(const PolicyMethod& method, const at::Tensor& output, const at::Tensor& target,
                       at::Reduction::Reduction reduction);

// Acts on some cart-poles at once, one forward for all of them, and tells what each action was worth.

class CartPoleActor : public Actor {
 public:
  /// Environment e of rank r draws from the stream r x environments + e of the seed.
  CartPoleActor(const PolicyMethod& method, int64_t seed, const ActingRank& rank);
  int64_t samples() const override { return method_.environments * method_.steps; }
  int64_t passes() const override { return method_.passes; }
  Acted act(const Policy& policy) override;
  std::vector<at::Tensor> state() const override;
  void restore(const std::vector<at::Tensor>& state) override;
  Goal goal() const override { return {.episodes = 100, .reward = method_.solved}; }
  std::vector<double> play(const Policy& policy, int64_t first, int64_t count) const override;

 private:
  struct Environment {
    CartPole pole;
    SplitMix64 random;
  };
  struct Round;

  at::Tensor observations() const;
  void take_step(Round& round, int64_t number, const at::Tensor& output);
  void value_what_followed(Round& round, const Policy& policy) const;
  void normalise(std::vector<double>& advantages) const;

  const PolicyMethod method_;
  const uint64_t seed_;
  const ActingRank rank_;
  const double reward_;  // of a step: scaled, so that values are numbers around 1
  std::vector<Environment> environments_;
};

// What an action was worth beyond what was expected: generalised advantages (Schulman et al.,
// arXiv:1506.02438).

/// A round's steps, one time after another, and in each all environments.
struct Trail {
  int64_t environments = 1;
  std::vector<double> rewards;
  std::vector<double> values;       // that the model gave what was seen
  std::vector<double> next_values;  // and what came of it: 0 after a fall, though not when the time was up
  std::vector<bool> ended;          // the episode, either way
};

std::vector<double> advantages_of(const Trail& trail, double gamma, double lambda);

}  // namespace lockstep::tasks
