#pragma once
// Where a run's time goes: one clock that is always in exactly one phase.

#include <array>
#include <chrono>
#include <string>

#include "trainer/observe/tracer.h"

namespace lockstep::train {

enum class Phase { data, forward, backward, waiting, optimiser, other, count };
inline constexpr size_t kPhases = static_cast<size_t>(Phase::count);
static_assert(kPhases == static_cast<size_t>(SpanKind::evaluation), "a phase's span has its number");
using PhaseSeconds = std::array<double, kPhases>;

/// "data", "forward", "backward", "waiting for communication", "optimiser", "other".
const char* name_of(Phase phase);

class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// What follows belongs to `phase`.
  void enter(Phase phase) { enter_at(phase, Clock::now()); }
  /// The same, from a moment that has been noted before.
  void enter_at(Phase phase, Clock::time_point moment) {
    seconds_[static_cast<size_t>(phase_)] += std::chrono::duration<double>(moment - since_).count();
    if (tracer_) tracer_->add(static_cast<SpanKind>(phase_), since_, moment);
    since_ = moment;
    phase_ = phase;
  }
  const PhaseSeconds& seconds() const { return seconds_; }

  /// Each phase from now on is a span as well.
  void trace(Tracer* tracer) {
    tracer_ = tracer;
    since_ = Clock::now();
  }
  /// What follows belongs to this step.
  void begin_step(int64_t number) {
    if (tracer_) tracer_->begin_step(number);
  }

 private:
  PhaseSeconds seconds_{};
  Phase phase_ = Phase::other;
  Clock::time_point since_ = Clock::now();
  Tracer* tracer_ = nullptr;
};

/// "data 1.2 s (10 %), forward ...".
std::string phase_table(const PhaseSeconds& seconds);

}  // namespace lockstep::train
