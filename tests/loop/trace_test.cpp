// The ring of spans, and the file that becomes of them.
#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <nlohmann/json.hpp>

#include "trainer/observe/phase_clock.h"
#include "trainer/observe/trace.h"

namespace lockstep::train {
namespace {

std::string written(const std::vector<RankTrace>& ranks) {
  std::string text;
  write_trace(ranks, "a \"note\"",
              [&](const void* data, size_t size) { text.append(static_cast<const char*>(data), size); });
  return text;
}

std::vector<nlohmann::json> spans_in(const std::string& text) {
  std::vector<nlohmann::json> spans;
  const auto whole = nlohmann::json::parse(text);
  for (const auto& event : whole.at("traceEvents"))
    if (event.at("ph") == "X") spans.push_back(event);
  return spans;
}

TEST(Tracer, KeepsTheLastStepsOldestFirst) {
  Tracer tracer(3, 100);
  for (int64_t step = 1; step <= 10; ++step) {
    tracer.begin_step(step);
    tracer.add({step * 10, step * 10 + 1, step, 0, SpanKind::data, -1});
    tracer.add({step * 10 + 1, step * 10 + 5, step, 0, SpanKind::forward, -1});
  }
  const auto spans = tracer.spans();
  ASSERT_EQ(spans.size(), 6U);
  EXPECT_EQ(spans.front().step, 8);
  EXPECT_EQ(spans.back().begin, 101);
}

TEST(WriteTrace, AlignsClocks) {
  const base::ClockReading ahead{1'000'000'000, 1e9, 10};
  const auto text = written({{0, "a", {{0, 5'000'000'000, 1, 0, SpanKind::data, -1}}, {}},
                             {1, "b", {{7'000'000'000, 13'000'000'000, 1, 0, SpanKind::data, -1}}, ahead}});
  const auto spans = spans_in(text);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].at("ts"), 0.0);
  EXPECT_NEAR(spans[1].at("ts").get<double>(), 6e6, 1);
  EXPECT_NEAR(spans[1].at("dur").get<double>(), 6e6, 1);
  EXPECT_EQ(nlohmann::json::parse(text).at("otherData").at("clocks").at(1).at("ahead_us"), 1e6);
}

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
  Standing(Standing&&) = delete;

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
