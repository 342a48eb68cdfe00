#include "lockstep/tasks/cart_pole.h"

#include <cmath>
#include <numbers>

namespace lockstep::tasks {
namespace {

constexpr double kGravity = 9.8, kMassCart = 1.0, kMassPole = 0.1, kTotalMass = kMassPole + kMassCart;
constexpr double kLength = 0.5;  // half the pole's
constexpr double kPoleMassLength = kMassPole * kLength, kForce = 10.0, kSeconds = 0.02;
constexpr double kMostAngle = 12 * 2 * std::numbers::pi / 360, kMostPosition = 2.4;

}  // namespace

void CartPole::reset(SplitMix64& random) {
  for (auto& number : state_) number = random.uniform(-0.05, 0.05);
  steps_ = 0;
}

// In Gymnasium's order of operations: the last bits depend on it.
CartPole::End CartPole::step(bool right) {
  auto& [x, speed, angle, turning] = state_;
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double push =
      ((right ? kForce : -kForce) + kPoleMassLength * (turning * turning) * sine) / kTotalMass;
  const double turn = (kGravity * sine - cosine * push) /
                      (kLength * (4.0 / 3.0 - kMassPole * (cosine * cosine) / kTotalMass));
  const double pull = push - kPoleMassLength * turn * cosine / kTotalMass;
  x += kSeconds * speed;
  speed += kSeconds * pull;
  angle += kSeconds * turning;
  turning += kSeconds * turn;
  ++steps_;
  return {.fell = x < -kMostPosition || x > kMostPosition || angle < -kMostAngle || angle > kMostAngle,
          .time_up = steps_ >= kMostSteps};
}

void CartPole::observe(float* into) const {
  for (const double number : state_) *into++ = static_cast<float>(number);
}

}  // namespace lockstep::tasks
