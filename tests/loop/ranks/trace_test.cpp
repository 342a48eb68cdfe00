// One time line of all ranks, and buckets that are traced without a bit of difference.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/models/mlp.h"
#include "loop/ranks/team.h"
#include "trainer/modes/model.h"
#include "trainer/observe/trace.h"

namespace lockstep::train {
namespace {

using test::team;

TEST(CompareClocks, ClaimsAnErrorThatHolds) {
  const auto readings = compare_clocks(team());
  ASSERT_EQ(readings.size(), static_cast<size_t>(team().world()));
  EXPECT_EQ(readings[0].ahead, 0);
  EXPECT_NEAR(readings.back().ahead, 0, readings.back().error + 1e3);  // the ranks share a host
  EXPECT_LT(readings.back().error, 50e6);
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
