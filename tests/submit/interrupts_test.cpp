#include "tools/submit/submission.h"

#include <gtest/gtest.h>

namespace lockstep::submit {
namespace {

TEST(Interrupts, AFirstOneIsOnlyNoted) {
  const auto before = ::signal(SIGTERM, SIG_IGN);
  {
    const Interrupts interrupts;
    EXPECT_FALSE(Interrupts::came());
    ::testing::internal::CaptureStderr();
    {
      const Interrupts::Answered answered("not yet\n");
      ::raise(SIGTERM);
    }
    ::raise(SIGHUP);  // of which there may be many
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "not yet\n");
    EXPECT_TRUE(Interrupts::came());
  }
  EXPECT_EQ(::signal(SIGTERM, before), SIG_IGN);  // put back
}

}  // namespace
}  // namespace lockstep::submit
