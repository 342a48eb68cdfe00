#include "lockstep/launch/process/doctor_hint.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::launch {

TEST(DoctorHint, StandsBelowAnErrorThatACheckWouldHaveTold) {
  EXPECT_EQ(with_doctor("ranks 0 and 1 share one GPU (x)\n  to do: y"),
            "ranks 0 and 1 share one GPU (x)\n  to do: y\n"
            "  or ask: lockstep doctor, started the same way (its check: gpus)");
}

TEST(DoctorHint, IsSilentOnAllOtherErrors) {
  EXPECT_EQ(with_doctor("unknown key 'optm'"), "unknown key 'optm'");
  EXPECT_EQ(with_doctor("other\n  where: ranks 0 and 1 share one GPU"),
            "other\n  where: ranks 0 and 1 share one GPU");
}

TEST(DoctorHint, HasOneRowForEachKindOfError) {
  std::set<std::string> words;
  for (const DoctorHint& hint : doctor_hints()) EXPECT_TRUE(words.insert(hint.words).second) << hint.words;
}

}  // namespace lockstep::launch
