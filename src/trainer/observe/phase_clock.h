#pragma once
// Where a run's time goes: one clock that is always in exactly one phase, the host's or a GPU's.

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "trainer/observe/device_clock.h"
#include "trainer/observe/ranges.h"
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
  /// On the host's clock, and on the device's where that one is timed.
  struct Moment {
    Clock::time_point host{};
    DeviceClock::Moment device = {};
  };

  PhaseClock() = default;
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  /// What follows belongs to `phase`.
  void enter(Phase phase) { enter_at(phase, now()); }
  /// The same, from a moment that has been noted before.
  void enter_at(Phase phase, const Moment& moment) {
    if (ranges_) ranges_->enter(name_of(phase));
    if (device_) {
      device_->enter(static_cast<int>(phase), step_, moment.device);
    } else {
      add(phase_, since_, moment.host);
    }
    since_ = moment.host;
    phase_ = phase;
  }
  Moment now() const { return {Clock::now(), device_ ? device_->now() : nullptr}; }
  /// Of a device that is timed: up to what was read.
  const PhaseSeconds& seconds() const { return seconds_; }

  /// Each phase from now on is a span as well.
  void trace(Tracer* tracer) {
    tracer_ = tracer;
    since_ = Clock::now();
  }
  /// From now on phases are what this device does in them, not what the host does. Nothing on a CPU.
  void time_on(at::Device device);
  /// From now on phases are what the host does in them again.
  void time_on_host();
  /// Reads what the device has done by now, without a wait; `all`: waits for it.
  void read_pending(bool all = false);
  /// From now on steps and their phases are ranges that Nsight shows.
  void show_ranges() { ranges_ = std::make_unique<Ranges>(); }
  /// What follows belongs to this step, and the phase that the clock is in.
  void begin_step(int64_t number) {
    step_ = number;
    if (device_) device_->begin_step(number);
    if (tracer_) tracer_->begin_step(number);
    if (ranges_) ranges_->begin_step(number, name_of(phase_));
  }
  /// What follows belongs to none.
  void end_step() {
    if (ranges_) ranges_->leave();
    enter(Phase::other);
  }

 private:
  void add(Phase phase, Clock::time_point begin, Clock::time_point end) {
    seconds_[static_cast<size_t>(phase)] += std::chrono::duration<double>(end - begin).count();
    if (tracer_) tracer_->add(static_cast<SpanKind>(phase), begin, end);
  }
  void add(const DeviceClock::Span& span);

  PhaseSeconds seconds_{};
  Phase phase_ = Phase::other;
  Clock::time_point since_ = Clock::now();
  int64_t step_ = 0;
  Tracer* tracer_ = nullptr;
  std::unique_ptr<DeviceClock> device_;  // of a GPU
  std::unique_ptr<Ranges> ranges_;       // with train.nvtx
};

/// "data 1.2 s (10 %), forward ...".
std::string phase_table(const PhaseSeconds& seconds);

}  // namespace lockstep::train
