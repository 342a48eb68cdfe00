// What a race between DataParallel and DDP is told as.
#include "tools/bench/dp_vs_ddp_report.h"

#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

TEST(DpVsDdp, SaysWhichOfTwoIsSlower) {
  Results results;
  const std::vector<double> times = {70, 24, 30};
  for (size_t i = 0; i < kWays.size(); ++i) results.milliseconds[kWays[i]] = {times[i] - 1, times[i] + 1};
  for (const auto& ways : {kWays, kWide}) {
    for (const auto& way : ways) results.last[way] = {};
  }
  const auto text = as_text(results);
  const auto line = [&](const std::string& way) {
    const auto begin = text.find("\n" + way + "  ") + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_NE(line("dp").find("2.33x slower"), std::string::npos) << text;
  EXPECT_NE(line("dp, loss inside").find("1.25x faster"), std::string::npos) << text;
  EXPECT_EQ(line("ddp").find('x'), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::bench
