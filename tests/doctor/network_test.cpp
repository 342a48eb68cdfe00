#include "tools/doctor/job/network.h"

#include <gtest/gtest.h>

#include "tools/doctor/job/reach.h"

namespace lockstep::doctor {
namespace {

Job job_of(int rank, int nodes) {
  return {
      .rank = rank, .world = nodes, .node_rank = rank, .nodes = nodes, .host = "n" + std::to_string(rank)};
}

comm::NetworkFacts facts(const std::string& host, const std::string& address,
                         std::vector<comm::NetworkAddress> interfaces, const std::string& wanted = "") {
  interfaces.push_back({"lo", "127.0.0.1", true, 8});
  return {host, {address}, std::move(interfaces), wanted};
}

RankNetwork node_network(int rank, const std::string& address, const std::string& nccl = "") {
  return network_of(job_of(rank, 2),
                    facts("n" + std::to_string(rank), address, {{"eth0", address, false, 24}}), nccl);
}

TEST(Network, TwoNodesInOneSubnetAreFine) {
  const auto findings = judge_networks({node_network(0, "10.0.0.5"), node_network(1, "10.0.0.6")}, 2);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, FindingLevel::ok);
  EXPECT_NE(findings[0].says.find("gloo takes eth0 on 2 nodes"), std::string::npos) << findings[0].says;
  EXPECT_NE(findings[0].drawing.find("n1: eth0 10.0.0.6/24 (gloo), lo 127.0.0.1/8"), std::string::npos)
      << findings[0].drawing;
}

TEST(Network, SurvivesTheJourney) {
  const auto before =
      network_of(job_of(1, 2), facts("a b", "127.0.1.1", {{"e\n0", "fe80::1", false, 64}}), "x");
  const auto after = unpack_network(pack(before));
  EXPECT_EQ(after.host, "a b");
  EXPECT_EQ(after.interfaces.at(0).interface, "e\n0");
  EXPECT_EQ(after.interfaces.at(0).bits, 64);
  EXPECT_EQ(after.refused, before.refused);
  EXPECT_FALSE(after.refused.empty());
}

TEST(Network, AHostNameThatIsTheLoopbackIsAFailureOfItsRank) {
  const auto bad = network_of(job_of(1, 2), facts("n1", "127.0.1.1", {{"eth0", "10.0.0.6", false, 24}}), "");
  const auto findings = judge_networks({node_network(0, "10.0.0.5"), bad}, 2);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::failure);
  EXPECT_NE(findings[0].says.find("rank 1: "), std::string::npos) << findings[0].says;
  EXPECT_NE(findings[0].says.find("127.0.1.1"), std::string::npos);
  EXPECT_NE(findings[0].remedy.find("eth0 (10.0.0.6)"), std::string::npos) << findings[0].remedy;
}

TEST(Network, OtherSubnetsAreAWarning) {
  const auto findings = judge_networks({node_network(0, "10.0.0.5"), node_network(1, "10.0.1.6")}, 2);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].says.find("10.0.0.0/24 on n0 (eth0)"), std::string::npos) << findings[0].says;
  EXPECT_NE(findings[0].says.find("10.0.1.0/24 on n1 (eth0)"), std::string::npos) << findings[0].says;
}

TEST(Network, AFasterInterfaceThatAllHaveIsNamed) {
  auto first = node_network(0, "10.0.0.5"), second = node_network(1, "10.0.0.6");
  first.interfaces.push_back({"hsn0", "10.9.0.5", false, 16});
  EXPECT_EQ(judge_networks({first, second}, 2).at(0).verdict, FindingLevel::ok) << "one node alone has it";
  second.interfaces.push_back({"hsn0", "10.9.0.6", false, 16});
  const auto findings = judge_networks({first, second}, 2);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].remedy.find("GLOO_SOCKET_IFNAME=hsn0"), std::string::npos);
}

TEST(Network, NcclChoosesAsNcclDoes) {
  auto network = node_network(0, "10.0.0.5");
  network.interfaces = {{"lo", "127.0.0.1", true, 8},
                        {"docker0", "172.17.0.1", false, 16},
                        {"eth0", "10.0.0.5", false, 24},
                        {"ib0", "10.1.0.5", false, 24}};
  EXPECT_EQ(nccl_interface(network), "ib0");
  network.interfaces.pop_back();
  EXPECT_EQ(nccl_interface(network), "eth0");
  network.nccl_wanted = "docker";
  EXPECT_EQ(nccl_interface(network), "docker0");
  network.nccl_wanted = "=docker";
  EXPECT_EQ(nccl_interface(network), "");
  network.nccl_wanted = "^eth,lo";
  EXPECT_EQ(nccl_interface(network), "docker0");
  network.nccl_wanted = "ib9";
  const auto findings = judge_networks({network}, 1);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::failure);
  EXPECT_NE(findings[0].says.find("NCCL_SOCKET_IFNAME is 'ib9'"), std::string::npos) << findings[0].says;
}

TEST(Network, SubnetsOfBothFamilies) {
  EXPECT_EQ(subnet_of({"e", "10.11.12.13", false, 20}), "10.11.0.0/20");
  EXPECT_EQ(subnet_of({"e", "fd00:1:2:3::4", false, 48}), "fd00:1:2::/48");
}

TEST(Reach, AnOpenDoorIsReachedAndAClosedOneIsNot) {
  auto [door, port] = listen_at("127.0.0.1");
  const auto failed = call({{"here", "127.0.0.1", port}, {"there", "127.0.0.1", 1}}, std::chrono::seconds(2));
  EXPECT_FALSE(failed.contains(0));
  ASSERT_TRUE(failed.contains(1));
  EXPECT_EQ(failed.at(1), "Connection refused");
}

TEST(Reach, FewNodesCallAllOthersAndManyTheirNeighbours) {
  EXPECT_EQ(calls_of(1, 3), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(calls_of(50, 100), (std::vector<size_t>{0, 49, 51}));
  EXPECT_EQ(calls_of(0, 100), (std::vector<size_t>{1, 99}));
}

TEST(Reach, NamesBothEndsAndTheReason) {
  const auto findings = judge_reach({{"n1", {"n0", "10.0.0.5", 4711}, "no answer in 3 s"}}, 2);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::failure);
  EXPECT_NE(findings[0].says.find("n1 does not reach n0 at 10.0.0.5 port 4711: no answer"),
            std::string::npos);
  EXPECT_EQ(judge_reach({}, 2).at(0).verdict, FindingLevel::ok);
}

}  // namespace
}  // namespace lockstep::doctor
