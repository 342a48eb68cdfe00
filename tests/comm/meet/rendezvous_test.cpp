#include <gtest/gtest.h>

#include <algorithm>

#include "comm/meet/job_of.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/meet/join.h"

namespace lockstep::comm {
namespace {

using test::job_of;

const launch::Environment kMaster = {{"MASTER_ADDR", "login1"}, {"MASTER_PORT", "29500"}};

launch::Environment torchrun(const std::string& restart = "0") {
  launch::Environment environment = kMaster;
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RUN_ID"] = "run7";
  environment["TORCHELASTIC_RESTART_COUNT"] = restart;
  return environment;
}

TEST(Rendezvous, TorchrunsAgentHoldsTheStoreForRankZeroToo) {
  EXPECT_NE(plan_rendezvous(torchrun("0"), job_of(0, 2)).prefix,
            plan_rendezvous(torchrun("1"), job_of(0, 2)).prefix)
      << "a restart has keys of its own";
  for (int rank = 0; rank < 2; ++rank) {
    const auto plan = plan_rendezvous(torchrun(), job_of(rank, 2));
    EXPECT_EQ(plan.how, Meeting::agent);
    EXPECT_EQ(plan.host, "login1");
    EXPECT_EQ(plan.port, 29500);
  }
}

TEST(Rendezvous, ANamedMeetingComesBeforeAnAddress) {
  auto environment = kMaster;
  environment["LOCKSTEP_MEETING"] = "as-world-7/../x";
  auto job = job_of(1, 4);
  EXPECT_EQ(plan_rendezvous(environment, job).port, 29500) << "left behind by an outer job";
  job.launcher = "as_world";
  const auto plan = plan_rendezvous(environment, job);
  EXPECT_EQ(plan.how, Meeting::local);
  EXPECT_TRUE(plan.path.ends_with("/as-world-7_.._x.store")) << plan.path;
}

TEST(Rendezvous, SeveralNodesMeetAtMasterAddrAndPort) {
  for (int rank = 0; rank < 2; ++rank) {
    const auto plan = plan_rendezvous(kMaster, job_of(rank, 2, 2));
    EXPECT_EQ(plan.how, Meeting::address);
    EXPECT_EQ(plan.host, "login1");
    EXPECT_EQ(plan.port, 29500);
  }
}

TEST(Rendezvous, OneNodeNeedsNoPort) {
  auto loopback = kMaster;
  loopback["MASTER_ADDR"] = "127.0.0.1";
  for (int rank = 0; rank < 2; ++rank) {
    const auto plan = plan_rendezvous(kMaster, job_of(rank, 2));
    EXPECT_EQ(plan.how, Meeting::local);
    EXPECT_TRUE(plan.path.ends_with("/login1-29500.store")) << plan.path;
    EXPECT_EQ(plan_rendezvous(loopback, job_of(rank, 2, 2)).how, Meeting::local);
  }
}

// the commonest exports by hand: rank 0 guesses one node, rank 1 two
TEST(Rendezvous, AGuessedLayoutMeetsAtTheAddressThatAllKnow) {
  const auto by_hand = [](Job job) {
    job.guessed = {"local_world", "nodes", "node_rank"};
    return plan_rendezvous(kMaster, job);
  };
  EXPECT_EQ(by_hand(job_of(0, 2)).how, Meeting::address);
  EXPECT_EQ(by_hand(job_of(1, 2, 2)).how, Meeting::address);
}

TEST(Rendezvous, AFilesNameLeadsNowhereElse) {
  Job job = job_of(0, 2);
  job.scheduler = "pbs";
  job.job_id = "../../etc/passwd 7[1].server" + std::string(500, 'x');
  const auto path = plan_rendezvous({{"TMPDIR", "/scratch"}}, job).path;
  EXPECT_EQ(path.find("/etc"), std::string::npos) << path;
  EXPECT_EQ(std::count(path.begin(), path.end(), '/'), 3) << path;
  EXPECT_LT(path.size(), 200U);
}

TEST(Rendezvous, AJobStepIsAFileAndForSeveralNodesASharedOne) {
  Job job = job_of(0, 2);
  job.scheduler = "slurm";
  job.job_id = "41";
  const auto first = plan_rendezvous({{"SLURM_STEP_ID", "0"}, {"TMPDIR", "/scratch"}}, job);
  const auto second = plan_rendezvous({{"SLURM_STEP_ID", "1"}, {"TMPDIR", "/scratch"}}, job);
  EXPECT_TRUE(first.path.starts_with("/scratch/")) << first.path;
  EXPECT_NE(first.path, second.path);
  job.nodes = 2;
  const auto shared = plan_rendezvous({{"SLURM_SUBMIT_DIR", "/shared"}, {"TMPDIR", "/scratch"}}, job);
  EXPECT_EQ(shared.how, Meeting::file);
  EXPECT_TRUE(shared.path.starts_with("/shared/")) << "a node's own folder is not seen by the other";
}

TEST(Rendezvous, WhatIsNoAddressIsAnError) {
  EXPECT_THROW(plan_rendezvous({}, job_of(0, 2)), InputError) << "no way to meet";
  for (const std::string port : {"0", "65536", "29500x"}) {
    EXPECT_THROW(plan_rendezvous({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}}, job_of(0, 2)), InputError)
        << port;
  }
  for (const launch::Environment& half :
       {launch::Environment{{"MASTER_ADDR", "a"}}, launch::Environment{{"MASTER_PORT", "1"}}}) {
    EXPECT_THROW(plan_rendezvous(half, job_of(0, 2)), InputError);
  }
}

}  // namespace
}  // namespace lockstep::comm
