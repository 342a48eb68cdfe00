#pragma once
// Where a run's time goes: one clock that is always in exactly one phase, the host's or a GPU's.

#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/observe/trace.h"

namespace lockstep::train {

// When a GPU went from phase to phase: events in the stream that computes, read after another wait.
class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Moment = std::shared_ptr<c10::Event>;
  /// A phase that is over.
  struct Span {
    int phase;
    int64_t step;
    Clock::time_point begin, end;
  };
  using Read = std::function<void(const Span& span)>;

  /// Waits for the device once, to read its time.
  DeviceClock(c10::Device device, int phase, Read read);

  /// Of the device's stream; from any thread that computes on it.
  Moment now();
  void enter(int phase, int64_t step, Moment moment);
  void begin_step(int64_t number) { entries_.back().step = number; }
  /// Reads what the device has reached.
  void read_pending();
  /// Waits for the rest and reads it.
  void finish();

 private:
  struct Entry {
    int phase;
    int64_t step;
    Moment moment;
  };

  const c10::Device device_;
  const Read read_;
  std::deque<Entry> entries_;  // the first one's moment is since_
  std::vector<Moment> used_;   // to be recorded again
  Clock::time_point since_;
};

enum class Phase { data, forward, backward, waiting, optimizer, other, count };
inline constexpr size_t kPhases = static_cast<size_t>(Phase::count);
static_assert(kPhases == static_cast<size_t>(SpanKind::evaluation), "a phase's span has its number");
using PhaseSeconds = std::array<double, kPhases>;

/// "data", "forward", "backward", "waiting for communication", "optimizer", "other".
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

  void enter(Phase phase) { enter_at(phase, now()); }
  /// The same, from an earlier moment.
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

  /// From now on each phase is also a span.
  void trace(Tracer* tracer) {
    tracer_ = tracer;
    since_ = Clock::now();
  }
  /// From now on times what this device does, not the host. Nothing on a CPU.
  void time_on(at::Device device);
  /// Back to the host.
  void time_on_host();
  /// Reads what the device has done; `all`: waits for the rest.
  void read_pending(bool all = false);
  /// From now on steps and phases are ranges for Nsight.
  void show_ranges() { ranges_ = std::make_unique<Ranges>(); }
  void begin_step(int64_t number) {
    step_ = number;
    if (device_) device_->begin_step(number);
    if (tracer_) tracer_->begin_step(number);
    if (ranges_) ranges_->begin_step(number, name_of(phase_));
  }
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
