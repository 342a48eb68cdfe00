#include "trainer/observe/phase_clock.h"

#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>

namespace lockstep::train {
namespace {

TEST(PhaseClock, AddsUpToTheTimeThatPassed) {
  PhaseClock clock;
  const auto begin = PhaseClock::Clock::now();
  clock.enter_at(Phase::forward, {begin});
  clock.enter_at(Phase::backward, {begin + std::chrono::seconds(1)});
  clock.enter_at(Phase::waiting, {begin + std::chrono::seconds(3)});
  clock.enter_at(Phase::other, {begin + std::chrono::seconds(6)});
  const auto& seconds = clock.seconds();
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::forward)], 1);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::backward)], 2);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::waiting)], 3);
}

// Stands for libtorch's half of CUDA.
struct Written : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex*, torch::profiler::impl::ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub*,
                const torch::profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { text += std::string("<") + name; }
  void rangePop() const override { text += ">"; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
  mutable std::string text;
};

// Stands there for as long as it lives.
struct Standing {
  explicit Standing(Written& written) { torch::profiler::impl::registerCUDAMethods(&written); }
  ~Standing() { torch::profiler::impl::registerCUDAMethods(before_); }
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

 private:
  torch::profiler::impl::ProfilerStubs* before_ =
      const_cast<torch::profiler::impl::ProfilerStubs*>(torch::profiler::impl::cudaStubs());
};

TEST(PhaseClock, ShowsStepsAndTheirPhasesAsRanges) {
  Written written;
  {
    const Standing standing(written);
    PhaseClock clock;
    clock.show_ranges();
    clock.enter(Phase::data);
    for (const int step : {1, 2}) {
      clock.begin_step(step);
      clock.enter(Phase::forward);
      clock.enter(Phase::backward);
      clock.enter(Phase::data);
      if (step == 1) clock.end_step();
    }
  }
  EXPECT_EQ(written.text, "<step 1<data><forward><backward><data>><step 2<other><forward><backward><data>>");
}

}  // namespace
}  // namespace lockstep::train
