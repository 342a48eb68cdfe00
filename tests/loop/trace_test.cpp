// The ring of spans, and the file that becomes of them.
#include <gtest/gtest.h>

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
  for (const auto& event : whole.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
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

TEST(Tracer, SeesEachPhaseOfAClock) {
  Tracer tracer(10, 100);
  PhaseClock clock;
  clock.enter(Phase::data);
  clock.trace(&tracer);
  clock.begin_step(1);
  clock.enter(Phase::forward);
  clock.enter(Phase::other);
  const auto spans = tracer.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, SpanKind::data);
  EXPECT_EQ(spans[1].kind, SpanKind::forward);
  EXPECT_EQ(spans[0].end, spans[1].begin);
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

TEST(WriteTrace, BucketsThatOverlapStandOnLanesOfTheirOwn) {
  const auto bucket = [](int64_t begin, int64_t end, int16_t number) {
    return Span{begin, end, 1, 64, SpanKind::all_reduce, number};
  };
  const auto spans =
      spans_in(written({{0, "a", {bucket(0, 10, 0), bucket(5, 15, 1), bucket(12, 20, 2)}, {}}}));
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid"));
  EXPECT_EQ(spans[0].at("tid"), spans[2].at("tid"));
  EXPECT_EQ(spans[1].at("args").at("bytes"), 64);
}

}  // namespace
}  // namespace lockstep::train
