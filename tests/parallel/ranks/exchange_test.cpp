// What ranks tell each other by hand: means, texts, objects, an ordered print.
#include "lockstep/parallel/exchange.h"
#include "lockstep/comm/connect.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/parallel/exchange_json.h"
#include "ranks.h"

namespace lockstep {
namespace {

const ProcessGroup& group() {
  static const ProcessGroup instance = comm::connect(test::runtime(), {.backend = "gloo"});
  return instance;
}
int rank() {
  return group()->getRank();
}
int world() {
  return group()->getSize();
}

TEST(Exchange, MeanOverRanksWeighsByCount) {
  Mean mean;
  for (int i = 0; i <= rank(); ++i) mean.add(at::scalar_tensor(rank()));
  double sum = 0, count = 0;
  for (int r = 0; r < world(); ++r) sum += r * (r + 1), count += r + 1;
  EXPECT_DOUBLE_EQ(all_reduce_mean(mean, group()), sum / count);
  EXPECT_DOUBLE_EQ(mean.value(), rank());
  EXPECT_TRUE(std::isnan(all_reduce_mean(Mean(), group())));
}

TEST(Exchange, MeanOfALossLeavesTheLossAlone) {
  const at::Tensor loss = at::scalar_tensor(float(rank())).requires_grad_();
  const at::Tensor mean = all_reduce_mean(loss, group());
  EXPECT_FLOAT_EQ(mean.item<float>(), (world() - 1) / 2.0f);
  EXPECT_FLOAT_EQ(loss.item<float>(), float(rank()));
  EXPECT_FALSE(mean.requires_grad());
}

TEST(Exchange, TextsOfAnyBytesTravel) {
  const std::string text("a\0b\n\xff", 5);
  const int root = world() - 1;
  EXPECT_EQ(broadcast_text(rank() == root ? text : "not this", group(), root), text);
  EXPECT_EQ(broadcast_text("", group()), "");
  const auto all = all_gather_text(std::string(rank(), 'x'), group());
  for (int r = 0; r < world(); ++r) EXPECT_EQ(all[r], std::string(r, 'x'));
}

TEST(Exchange, ObjectsTravelAsJson) {
  const std::map<std::string, std::vector<double>> mine = {{"r", {double(rank()), 0.1}}};
  EXPECT_EQ(parallel::broadcast_object(mine, group()).at("r"), (std::vector<double>{0, 0.1}));
  EXPECT_EQ(parallel::all_gather_objects(rank(), group()).back(), world() - 1);
}

TEST(Exchange, TextsArePrintedByRank0InRankOrder) {
  ::testing::internal::CaptureStdout();
  print_in_order("rank " + std::to_string(rank()), group());
  const std::string printed = ::testing::internal::GetCapturedStdout();
  std::string all;
  for (int r = 0; r < world(); ++r) all += "rank " + std::to_string(r) + "\n";
  EXPECT_EQ(printed, rank() == 0 ? all : "");
}

TEST(Exchange, WhatRank0FailsAtIsThrownOnEveryRank) {
  EXPECT_NO_THROW(rank0_only(group(), [] { EXPECT_EQ(rank(), 0); }));
  try {
    rank0_only(group(), [] { throw InputError("no such file"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no such file"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
