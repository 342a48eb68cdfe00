#pragma once
// Acts on some cart-poles at once, one forward for all of them, and tells what each action was worth.

#include <vector>

#include "lockstep/tasks/actor.h"
#include "lockstep/tasks/cart_pole.h"
#include "lockstep/tasks/policy_method.h"

namespace lockstep::tasks {

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

}  // namespace lockstep::tasks
