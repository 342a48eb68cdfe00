#pragma once
// A pole on a cart that is pushed left or right: CartPole-v1 as Gymnasium has it (Barto, Sutton and Anderson,
// 1983), state for state.

#include <array>
#include <cstdint>

#include "lockstep/tasks/split_mix.h"

namespace lockstep::tasks {

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

}  // namespace lockstep::tasks
