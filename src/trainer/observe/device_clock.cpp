#include "trainer/observe/device_clock.h"

#include <utility>

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

}  // namespace lockstep::train
