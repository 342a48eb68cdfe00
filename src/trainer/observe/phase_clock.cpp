#include "trainer/observe/phase_clock.h"

#include <numeric>
#include <utility>

#include "lockstep/base/format.h"

namespace lockstep::train {
namespace {

constexpr size_t kMany = 256;  // some fifty steps: so many wait to be read before somebody asks

}  // namespace

DeviceClock::DeviceClock(c10::Device device, int phase, Read read) : device_(device), read_(std::move(read)) {
  entries_.push_back({phase, 0, now()});
  entries_.front().moment->synchronize();
  since_ = Clock::now();
}

DeviceClock::Moment DeviceClock::now() {
  Moment moment;
  if (used_.empty()) {
    moment = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  } else {
    moment = std::move(used_.back());
    used_.pop_back();
  }
  moment->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return moment;
}

void DeviceClock::enter(int phase, int64_t step, Moment moment) {
  entries_.push_back({phase, step, std::move(moment)});
  if (entries_.size() > kMany) read_pending();
}

void DeviceClock::read_pending() {
  while (entries_.size() > 1 && entries_[1].moment->query()) {
    const auto& [phase, step, begin] = entries_[0];
    const std::chrono::duration<double, std::milli> took(begin->elapsedTime(*entries_[1].moment));
    const auto end = since_ + std::chrono::duration_cast<Clock::duration>(took);
    read_({phase, step, since_, end});
    since_ = end;
    used_.push_back(std::move(entries_[0].moment));
    entries_.pop_front();
  }
}

void DeviceClock::finish() {
  entries_.back().moment->synchronize();
  read_pending();
}

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kNames = {
      "data", "forward", "backward", "waiting for communication", "optimizer", "other"};
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
  for (size_t i = 0; i < kPhases; ++i)
    text += format("{}{} {:.2f} s ({:.0f} %)", i ? ", " : "", name_of(static_cast<Phase>(i)), seconds[i],
                   total > 0 ? 100 * seconds[i] / total : 0);
  return text;
}

}  // namespace lockstep::train
