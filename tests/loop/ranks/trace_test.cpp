// One time line of ranks whose clocks differ, and buckets that are traced without a bit of difference.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <thread>

#include "lockstep/models/mlp.h"
#include "loop/ranks/team.h"
#include "trainer/modes/model.h"
#include "trainer/observe/trace_file.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;
using test::team;

// Rank 1's clock is 7 s ahead and gains 2 ms a second.
Tracer::Skew skew_of(int rank) {
  return rank == 0 ? Tracer::Skew{} : Tracer::Skew{7s, 1.002};
}

TEST(CompareClocks, FindsAClockThatIsAhead) {
  const Tracer tracer(1, 1, team().first() ? Tracer::Skew{} : Tracer::Skew{7s, 1});
  const auto readings = compare_clocks(team(), tracer);
  ASSERT_EQ(readings.size(), static_cast<size_t>(team().world()));
  EXPECT_EQ(readings[0].ahead, 0);
  // the ranks share a host, so the truth is known; the error that is claimed holds
  EXPECT_NEAR(readings.back().ahead, 7e9, readings.back().error + 1e3);
  EXPECT_LT(readings.back().error, 50e6);
}

TEST(Trace, OneAllReduceOverlapsOnRanksWhoseClocksDrift) {
  Tracer tracer(100, 100, skew_of(team().rank()));
  const auto first = compare_clocks(team(), tracer);
  std::vector<double> nothing{0};
  for (int64_t step = 1; step <= 20; ++step) {
    std::this_thread::sleep_for(20ms);
    team().barrier();
    const auto begin = tracer.now();
    team().sum(nothing);
    std::this_thread::sleep_for(3ms);  // that the clocks' remaining error is small against
    tracer.begin_step(step);
    tracer.add({begin, tracer.now(), step, 8, SpanKind::all_reduce, 0});
  }
  const auto last = compare_clocks(team(), tracer);
  const auto texts = team().all_gather(packed(tracer.spans(), 1 << 20));
  const auto ours = unpacked(texts[0]), theirs = unpacked(texts.back());
  ASSERT_EQ(theirs.size(), 20U);
  for (size_t i = 0; i < ours.size(); ++i) {
    const double begin = aligned(theirs[i].begin, first.back(), last.back());
    const double end = aligned(theirs[i].end, first.back(), last.back());
    EXPECT_LT(begin, static_cast<double>(ours[i].end)) << "step " << i;
    EXPECT_GT(end, static_cast<double>(ours[i].begin)) << "step " << i;
  }
  EXPECT_GT(std::abs(static_cast<double>(theirs[0].begin - ours[0].begin)), 5e9) << "as the clocks have it";
}

at::Tensor trained(const std::shared_ptr<Tracer>& tracer) {
  torch::manual_seed(5);
  Settings settings;
  settings.ddp.bucket_cap_mb = 0.001;
  const auto model = make_trained_model(std::make_shared<Mlp>(8, std::vector<int64_t>{64, 32}, 2),
                                        Mesh(team()), settings, {.tracer = tracer});
  torch::manual_seed(100 + team().rank());
  for (int i = 0; i < 4; ++i) {
    if (tracer) tracer->begin_step(i + 1);
    for (auto& parameter : model->parameters()) parameter.mutable_grad().reset();
    model->forward(torch::randn({16, 8})).square().sum().backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.001);
  }
  std::vector<at::Tensor> flat;
  for (const auto& parameter : model->parameters()) flat.push_back(parameter.detach().flatten());
  return torch::cat(flat);
}

TEST(TracedBuckets, GiveTheSameBits) {
  const auto tracer = std::make_shared<Tracer>(100, 1000);
  const auto plain = trained(nullptr), seen = trained(tracer);
  EXPECT_TRUE(torch::equal(plain, seen));
  const auto spans = tracer->spans();
  ASSERT_GE(spans.size(), 4U);
  int64_t bytes = 0;
  for (const auto& span : spans) {
    EXPECT_EQ(span.kind, SpanKind::all_reduce);
    EXPECT_GE(span.end, span.begin);
    if (span.step == 4) bytes += span.bytes;
  }
  EXPECT_EQ(bytes, static_cast<int64_t>(plain.nbytes()));
}

}  // namespace
}  // namespace lockstep::train
