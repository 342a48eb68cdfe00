#include "lockstep/comm/meet/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "comm/meet/job_of.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using test::job_of;

// Lowers this process's limits for one test; the hard one could not be raised again.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{files, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~SoftLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;
  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST(OpenFiles, TheLimitGrowsWhereItMustAndNeverShrinks) {
  const SoftLimit limit(100);
  EXPECT_EQ(make_room_for_files(50), 100u);
  EXPECT_EQ(make_room_for_files(200), 200u);
  EXPECT_EQ(make_room_for_files(150), 200u);
}

TEST(OpenFiles, GlooIsRefusedWhereTheHardLimitIsTooLow) {
  const SoftLimit limit(100);
  check_room_for_gloo(job_of(1, 2));
  if (limit.hard() == RLIM_INFINITY) GTEST_SKIP() << "no hard limit here";
  EXPECT_THROW(check_room_for_gloo(job_of(1, static_cast<int>(limit.hard()) + 1)), InputError);
}

TEST(OpenFiles, RankZeroHoldsTheStore) {
  EXPECT_EQ(files_for(job_of(0, 1000)), files_for(job_of(1, 1000)) + 1000);
}

}  // namespace
}  // namespace lockstep::comm
