#pragma once
// A pole on a cart that is pushed left or right: CartPole-v1 as Gymnasium has it (Barto, Sutton and Anderson,
// 1983), state for state, and an actor that learns it by PPO (Schulman et al., arXiv:1707.06347) or by the
// plain policy gradient with a baseline (Williams, 1992).

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/tasks/actor.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the whole state is one number.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state = 0) : state_(state) {}
  /// Stream `number` of the seed. Each step is a one-to-one map, so all streams of a seed start in different
  /// states.
  SplitMix64(uint64_t seed, uint64_t number) : state_(mixed(mixed(seed + kStep) + number)) {}

  uint64_t next() { return mixed(state_ += kStep); }
  /// A number from 0 to below 1.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

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

struct CartPole {
  static constexpr int64_t kNumbers = 4;      // size of an observation
  static constexpr int64_t kMostSteps = 500;  // length of an episode

  struct End {
    bool fell = false;     // the pole fell, or the cart left the track
    bool time_up = false;  // the episode ended only because of kMostSteps
    explicit operator bool() const { return fell || time_up; }
  };

  /// Draws each number from -0.05 to 0.05.
  void reset(SplitMix64& random);
  /// Pushes once, to the right or to the left. The reward is 1.
  End step(bool right);

  std::array<double, kNumbers> state{};  // position, speed, angle and angular speed
  int64_t steps = 0;                     // so far; also the episode's reward
};

/// `task.options`
struct PolicyMethod {
  bool clips = true;          // PPO
  int64_t environments = 16;  // per rank
  int64_t steps = 128;        // per environment and rollout
  int64_t passes = 4;         // over a rollout's samples; plain: 1
  double gamma = 0.99;        // discount per step
  double lambda = 0.95;       // for the advantages; plain: 1
  double clip = 0.2;
  double entropy = 0.01;  // weight in the loss
  double value = 0.5;     // weight of the baseline in the loss
  double solved = 475;    // the mean reward over 100 episodes that ends the run; 0 = none
};

/// Throws InputError for an impossible value.
PolicyMethod policy_method(const RowOptions& options);

/// The columns of a sample's target.
struct TargetColumns {
  enum Column : int64_t { action, advantage, value, log_probability, columns };
};

/// `output`: a logit for each action, then the value.
at::Tensor policy_loss(const PolicyMethod& method, const at::Tensor& output, const at::Tensor& target,
                       at::Reduction::Reduction reduction);

/// The steps of a rollout: time by time, and for each time all environments.
struct Trajectory {
  int64_t environments = 1;
  std::vector<double> rewards;
  std::vector<double> values;       // the model's value before the step
  std::vector<double> next_values;  // the value after it: 0 after a fall, but not after the time limit
  std::vector<bool> ended;          // whether the episode ended, by a fall or the time limit
};

/// Generalized advantages (Schulman et al., arXiv:1506.02438).
std::vector<double> advantages_of(const Trajectory& trail, double gamma, double lambda);

/// Acts in several environments at once, with one forward for all of them.
class CartPoleActor : public Actor {
 public:
  /// Environment e of rank r uses stream r x environments + e of the seed.
  CartPoleActor(const PolicyMethod& method, int64_t seed, const ActorRank& rank);
  int64_t samples() const override { return method_.environments * method_.steps; }
  int64_t passes() const override { return method_.passes; }
  Rollout act(const Policy& policy) override;
  std::vector<at::Tensor> state() const override;
  void restore(const std::vector<at::Tensor>& state) override;
  Goal goal() const override { return {.episodes = 100, .reward = method_.solved}; }
  std::vector<double> play(const Policy& policy, int64_t first, int64_t count) const override;

 private:
  const PolicyMethod method_;
  const uint64_t seed_;
  const ActorRank rank_;
  std::vector<CartPole> poles_;
  std::vector<SplitMix64> randoms_;  // one per pole
};

}  // namespace lockstep::tasks
