#include "trainer/observe/tracer.h"

#include <algorithm>
#include <array>

namespace lockstep::train {

const char* name_of(SpanKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(SpanKind::count)> kNames = {
      "data",       "forward",    "backward",  "waiting for communication", "optimiser", "other",
      "evaluation", "checkpoint", "all-reduce"};
  return kNames[static_cast<size_t>(kind)];
}

Tracer::Tracer(int64_t steps, size_t room) : Tracer(steps, room, Skew{}) {}

Tracer::Tracer(int64_t steps, size_t room, Skew skew)
    : steps_(steps), skew_(skew), ring_(std::max<size_t>(1, room)) {}

void Tracer::add(const Span& span) noexcept {
  const std::lock_guard lock(mutex_);
  ring_[next_] = span;
  if (++next_ < ring_.size()) return;
  next_ = 0;
  full_ = true;
}

int64_t Tracer::stamp(Clock::time_point moment) const {
  const auto host = std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch());
  if (skew_.rate == 1) return (host + skew_.ahead).count();
  return static_cast<int64_t>(static_cast<double>(host.count()) * skew_.rate) + skew_.ahead.count();
}

std::vector<Span> Tracer::spans() const {
  const std::lock_guard lock(mutex_);
  const auto middle = ring_.begin() + static_cast<int64_t>(next_);
  std::vector<Span> kept;
  if (full_) kept.assign(middle, ring_.end());
  kept.insert(kept.end(), ring_.begin(), middle);
  const int64_t first = step() - steps_ + 1;
  std::erase_if(kept, [first](const Span& span) { return span.step < first; });
  return kept;
}

}  // namespace lockstep::train
