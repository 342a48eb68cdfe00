#include "lockstep/launch/process/report.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::launch {

TEST(DoctorHint, StandsBelowAnErrorThatACheckWouldHaveTold) {
  EXPECT_EQ(with_doctor("ranks 0 and 1 share one GPU (x)\n  to do: y", Code::gpu),
            "ranks 0 and 1 share one GPU (x)\n  to do: y\n"
            "  or ask: lockstep doctor, started the same way (its check: gpus)");
}

TEST(DoctorHint, IsSilentOnAllOtherErrors) {
  EXPECT_EQ(with_doctor("unknown key 'optm'", Code::bad_input), "unknown key 'optm'");
}

TEST(DoctorHint, HasOneRowForEachCode) {
  std::set<Code> codes;
  for (const DoctorHint& hint : doctor_hints()) EXPECT_TRUE(codes.insert(hint.code).second) << hint.check;
}

}  // namespace lockstep::launch
