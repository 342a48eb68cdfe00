// What Open MPI is told to open: only where all ranks are on one node, and nobody has chosen otherwise.
#include "lockstep/launch/process/mpi.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::launch {
namespace {

constexpr const char* kVersion4 = "Open MPI v4.1.4";

const Environment kOneNode = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

Environment with(const std::string& name, const std::string& value) {
  auto environment = kOneNode;
  environment[name] = value;
  return environment;
}

}  // namespace

TEST(MpiPlugins, AreNamedForTheRanksOfOneNode) {
  const auto named = plugins_of_one_node(kOneNode, kVersion4);
  ASSERT_EQ(named.size(), 10u);
  EXPECT_EQ(named[1], (std::pair<std::string, std::string>("OMPI_MCA_btl", "self,vader,tcp")));
}

TEST(MpiPlugins, AreTheUsersWhereOneIsChosen) {
  for (const char* name : {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_coll"})
    EXPECT_TRUE(plugins_of_one_node(with(name, "ucx"), kVersion4).empty()) << name;
  for (const auto& [name, value] : plugins_of_one_node(with("HWLOC_PLUGINS_BLACKLIST", "mine.so"), kVersion4))
    EXPECT_NE(name, "HWLOC_PLUGINS_BLACKLIST");
}

TEST(MpiPlugins, AreNotNamedOverSeveralNodesOrForAnotherLibrary) {
  EXPECT_TRUE(plugins_of_one_node(with("OMPI_COMM_WORLD_SIZE", "8"), kVersion4).empty());
  EXPECT_TRUE(plugins_of_one_node({}, kVersion4).empty());
  EXPECT_TRUE(plugins_of_one_node(kOneNode, "Open MPI v5.0.11").empty());
  EXPECT_TRUE(plugins_of_one_node(kOneNode, "MPICH 4.0.2").empty());
}

TEST(MpiPlugins, LeaveTheEnvironmentAsItWas) {
  ::unsetenv("TEST_PLUGIN");
  {
    const NamedPlugins named(std::vector<std::pair<std::string, std::string>>{{"TEST_PLUGIN", "sm"}});
    EXPECT_STREQ(std::getenv("TEST_PLUGIN"), "sm");
  }
  EXPECT_EQ(std::getenv("TEST_PLUGIN"), nullptr);
}

}  // namespace lockstep::launch
