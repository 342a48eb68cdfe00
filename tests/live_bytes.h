#pragma once
// How many bytes the tensors of this thread hold, and at most, as libtorch's allocator of the CPU counts
// them.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace lockstep::test {

class LiveBytes {
 public:
  LiveBytes() : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}
  int64_t most() const { return counter_->most; }
  int64_t now() const { return counter_->now; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes;
      most = std::max(most, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t now = 0, most = 0;
  };
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep::test
