#include "lockstep/comm/rendezvous/network.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include "lockstep/comm/rendezvous/join.h"
#include "refusal.h"

namespace lockstep::comm {
namespace {

Job job_of(int rank, int world, int nodes = 1) {
  Job job;
  job.rank = rank;
  job.world = world;
  job.nodes = nodes;
  return job;
}

NetworkFacts node(const std::vector<std::string>& host_addresses, const std::string& wanted = "") {
  return {"n1",
          host_addresses,
          {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}, {"ib0", "10.1.0.5", false}},
          wanted};
}

std::string refusal(const NetworkFacts& facts) {
  return describe(test::error_from([&] { choose_interface(facts, true); }));
}

TEST(Interface, OneNodeStaysOnTheLoopback) {
  for (const auto& facts : {node({}), node({"127.0.1.1"}), node({"10.0.0.5"})})
    EXPECT_EQ(choose_interface(facts, false).address, "127.0.0.1");
}

TEST(Interface, AHostNameThatIsTheLoopbackNamesTheVariable) {
  const auto text = refusal(node({"127.0.1.1"}));
  EXPECT_NE(text.find("GLOO_SOCKET_IFNAME"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.1.1"), std::string::npos) << text;
  EXPECT_NE(text.find("eth0 (10.0.0.5)"), std::string::npos) << text;
  EXPECT_EQ(text.find("lo ("), std::string::npos) << "the loopback is no way out: " << text;
  EXPECT_NE(refusal(node({})).find("does not resolve"), std::string::npos);
  EXPECT_NE(refusal(node({"192.168.9.9"})).find("not an address of this machine"), std::string::npos);
  EXPECT_NE(refusal(node({"10.0.0.5"}, "eth9")).find("no such interface"), std::string::npos);
}

TEST(Interface, ManyNodesTakeTheHostNamesAddressOrTheOneAskedFor) {
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}), true).address, "10.0.0.5");
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}), true).name, "");
  const auto chosen = choose_interface(node({"127.0.1.1"}, "ib0"), true);
  EXPECT_EQ(chosen.name, "ib0");
  EXPECT_EQ(chosen.address, "10.1.0.5");
  EXPECT_EQ(choose_interface(node({}, "ib0,eth0"), true).name, "ib0,eth0");
}

TEST(Interface, TheLoopbackCannotBeWishedForAcrossNodes) {
  EXPECT_NE(refusal(node({"10.0.0.5"}, "lo")).find("loopback"), std::string::npos);
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}, "lo"), false).name, "lo");
}

TEST(Listen, BindsTheOneAddressAndNamesATakenPort) {
  const Listener listener = listen_on("127.0.0.1");
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.socket.number(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(ntohs(address.sin_port), listener.port);
  const auto taken = test::error_from<Error>([&] { listen_on("127.0.0.1", listener.port); });
  EXPECT_TRUE(test::has(taken.what(), std::to_string(listener.port)));
  EXPECT_THROW(listen_on("192.0.2.1"), Error) << "another machine's address";
}

// Lowers this process's limits for one test; the hard one could not be raised again.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{files, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~SoftLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  SoftLimit(SoftLimit&&) = delete;
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

const launch::Environment kMaster = {{"MASTER_ADDR", "login1"}, {"MASTER_PORT", "29500"}};

launch::Environment torchrun(const std::string& restart = "0") {
  launch::Environment environment = kMaster;
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RUN_ID"] = "run7";
  environment["TORCHELASTIC_RESTART_COUNT"] = restart;
  return environment;
}

TEST(Rendezvous, NodesMeetAtMasterAddrAndPortAndOneNodeNeedsNoPort) {
  auto loopback = kMaster;
  loopback["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_NE(plan_rendezvous(torchrun("0"), job_of(0, 2)).prefix,
            plan_rendezvous(torchrun("1"), job_of(0, 2)).prefix)
      << "a restart has keys of its own";
  for (int rank = 0; rank < 2; ++rank) {
    const auto agent = plan_rendezvous(torchrun(), job_of(rank, 2));
    const auto nodes = plan_rendezvous(kMaster, job_of(rank, 2, 2));
    EXPECT_EQ(agent.kind, RendezvousKind::agent);
    EXPECT_EQ(nodes.kind, RendezvousKind::address);
    for (const auto& plan : {agent, nodes})
      EXPECT_EQ(plan.host + " " + std::to_string(plan.port), "login1 29500");
    const auto one_node = plan_rendezvous(kMaster, job_of(rank, 2));
    EXPECT_EQ(one_node.kind, RendezvousKind::local);
    EXPECT_TRUE(one_node.path.ends_with("/login1-29500.store")) << one_node.path;
    EXPECT_EQ(plan_rendezvous(loopback, job_of(rank, 2, 2)).kind, RendezvousKind::local);
  }
}

TEST(Rendezvous, ANamedMeetingComesBeforeAnAddress) {
  auto environment = kMaster;
  environment["LOCKSTEP_RENDEZVOUS"] = "as-world-7/../x";
  auto job = job_of(1, 4);
  EXPECT_EQ(plan_rendezvous(environment, job).port, 29500) << "left behind by an outer job";
  job.launcher = "as_world";
  const auto plan = plan_rendezvous(environment, job);
  EXPECT_EQ(plan.kind, RendezvousKind::local);
  EXPECT_TRUE(plan.path.ends_with("/as-world-7_.._x.store")) << plan.path;
}

// the commonest exports by hand: rank 0 guesses one node, rank 1 two
TEST(Rendezvous, AGuessedLayoutMeetsAtTheAddressThatAllKnow) {
  const auto by_hand = [](Job job) {
    job.guessed = {"local_world", "nodes", "node_rank"};
    return plan_rendezvous(kMaster, job);
  };
  EXPECT_EQ(by_hand(job_of(0, 2)).kind, RendezvousKind::address);
  EXPECT_EQ(by_hand(job_of(1, 2, 2)).kind, RendezvousKind::address);
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
  EXPECT_EQ(shared.kind, RendezvousKind::file);
  EXPECT_TRUE(shared.path.starts_with("/shared/")) << "a node's own folder is not seen by the other";
}

TEST(Rendezvous, WhatIsNoAddressIsAnError) {
  EXPECT_THROW(plan_rendezvous({}, job_of(0, 2)), InputError) << "no way to meet";
  for (const std::string port : {"0", "65536", "29500x"})
    EXPECT_THROW(plan_rendezvous({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}}, job_of(0, 2)), InputError)
        << port;
  for (const launch::Environment& half :
       {launch::Environment{{"MASTER_ADDR", "a"}}, launch::Environment{{"MASTER_PORT", "1"}}}) {
    EXPECT_THROW(plan_rendezvous(half, job_of(0, 2)), InputError);
  }
}

TEST(Difference, NamesTheKeyAndTheRank) {
  const std::pair<std::vector<Facts>, std::string> cases[] = {
      {{}, ""},
      {{{{"optim.lr", "0.1"}}, {{"optim.lr", "0.1"}}}, ""},
      {{{{"a", "1"}}, {{"a", "1"}, {"b", "2"}}}, "b is not set on rank 0, 2 on rank 1"},
      {{{{"optim.lr", "0.1"}}, {{"optim.lr", "0.1"}}, {{"optim.lr", "0.2"}}},
       "optim.lr is 0.1 on rank 0, 0.2 on rank 2"},
      {{{{"a", "1"}, {"b", "x"}}, {{"a", "2"}, {"b", "y"}}, {{"a", "2"}, {"b", "x"}}},
       "a is 1 on rank 0, 2 on ranks 1 and 2; b is x on rank 0, y on rank 1"},
      // ssh gives a rank no scheduler's variables
      {{{{"job id", ""}}, {{"job id", "7"}}, {{"job id", "7"}}}, ""},
      {{{{"job id", ""}}, {{"job id", "7"}}, {{"job id", "8"}}}, "job id is 7 on rank 1, 8 on rank 2"}};
  for (const auto& [all, said] : cases) EXPECT_EQ(difference(all), said);
}

TEST(Difference, WhatIsPrintedIsSafe) {
  const auto text = difference({{{"run.name", "a"}}, {{"run.name", "\x1b[2J" + std::string(5000, 'x')}}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 300U);
}

}  // namespace
}  // namespace lockstep::comm
