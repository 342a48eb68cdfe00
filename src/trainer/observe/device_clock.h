#pragma once
// When a GPU went from phase to phase: events in the stream that computes, read once it has been waited for
// anyhow, so that a step waits for none.

#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::train {

class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Moment = std::shared_ptr<c10::Event>;
  /// A phase that is over: its number, its step, from when to when.
  struct Span {
    int phase;
    int64_t step;
    Clock::time_point begin, end;
  };
  using Read = std::function<void(const Span& span)>;

  /// Waits for the device once, to know its time.
  DeviceClock(c10::Device device, int phase, Read read);

  /// Where the device's stream stands now; from any thread that computes on it.
  Moment now();
  /// What follows `moment` is of this phase.
  void enter(int phase, int64_t step, Moment moment);
  /// The phase that it is in belongs to this step.
  void begin_step(int64_t number) { entries_.back().step = number; }
  /// Reads what the device has come past.
  void read_pending();
  /// The same of all, and waits for it.
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

}  // namespace lockstep::train
