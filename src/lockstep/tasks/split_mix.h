#pragma once
// Random numbers of which each environment has its own: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014),
// whose whole state is one number.

#include <cstdint>

namespace lockstep::tasks {

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

}  // namespace lockstep::tasks
