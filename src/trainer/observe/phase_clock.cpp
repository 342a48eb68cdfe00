#include "trainer/observe/phase_clock.h"

#include <numeric>

#include "lockstep/base/format.h"

namespace lockstep::train {

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kNames = {
      "data", "forward", "backward", "waiting for communication", "optimiser", "other"};
  return kNames[static_cast<size_t>(phase)];
}

void PhaseClock::time_on(at::Device device) {
  if (device.is_cpu()) return;
  device_ = std::make_unique<DeviceClock>(device, static_cast<int>(phase_),
                                          [this](const DeviceClock::Span& span) { add(span); });
}

void PhaseClock::read_pending(bool all) {
  if (!device_) return;
  if (all) {
    device_->finish();
  } else {
    device_->read_pending();
  }
}

void PhaseClock::time_on_host() {
  if (!device_) return;
  enter(phase_);
  read_pending(/*all=*/true);
  device_.reset();
  since_ = Clock::now();
}

void PhaseClock::add(const DeviceClock::Span& span) {
  seconds_[static_cast<size_t>(span.phase)] += std::chrono::duration<double>(span.end - span.begin).count();
  if (tracer_) tracer_->add(static_cast<SpanKind>(span.phase), span.begin, span.end, span.step);
}

std::string phase_table(const PhaseSeconds& seconds) {
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::string text;
  for (size_t i = 0; i < kPhases; ++i) {
    text += format("{}{} {:.2f} s ({:.0f} %)", i ? ", " : "", name_of(static_cast<Phase>(i)), seconds[i],
                   total > 0 ? 100 * seconds[i] / total : 0);
  }
  return text;
}

}  // namespace lockstep::train
