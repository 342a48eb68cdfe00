// Which MPI answers: by the launcher, by the program that started the ranks, by what is loaded, LOCKSTEP_MPI.
#include "lockstep/launch/process/mpi.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "environments.h"

namespace lockstep {
using namespace test;
using enum mpi::Family;
using Families = std::vector<mpi::Family>;

namespace {

auto request(const launch::Environment& environment, const std::vector<std::string>& above = {}) {
  return launch::library_request(environment, "auto", above);
}

}  // namespace

TEST(MpiRequest, TheLauncherDecidesTheFamily) {
  EXPECT_EQ(request(kOpenMpi).families, (Families{open_mpi, standard}));
  EXPECT_EQ(request(kHydra).families.front(), mpich);
  EXPECT_EQ(request(kPals).families.front(), mpich);
  EXPECT_EQ(request(kOpenMpi).because, "OMPI_COMM_WORLD_RANK is set");
}

TEST(MpiRequest, ByChoiceAnyFamilyWillDo) {
  const auto any = launch::library_request({}, "mpi", {});
  EXPECT_EQ(any.families.size(), 3u);
  EXPECT_EQ(any.because, "--launcher mpi");
}

TEST(MpiRequest, TheLibraryBesideTheProgramThatStartedTheRanksComesFirst) {
  const auto found =
      request(kHydra + env("LD_LIBRARY_PATH=/loaded:"),
              {"/usr/bin/bash", "/opt/mpich/bin/hydra_pmi_proxy", "/opt/mpich/bin/mpiexec.hydra"});
  ASSERT_GE(found.folders.size(), 2u);
  EXPECT_EQ(found.folders.front(), "/opt/mpich/lib");
  EXPECT_EQ(found.folders.back(), "/loaded");
  EXPECT_NE(found.because.find("/opt/mpich/bin/hydra_pmi_proxy"), std::string::npos);
}

// Open MPI would say "0 of 1" to every rank that hydra starts.
TEST(MpiRequest, HydrasRanksAreNeverOpenMpis) {
  const auto outer_jobs_variables = kOpenMpi;
  for (const auto& environment : {kHydra, outer_jobs_variables})
    EXPECT_EQ(request(environment, {"/usr/bin/hydra_pmi_proxy"}).families, (Families{mpich, standard}));
}

TEST(MpiRequest, TheUserHasTheLastWord) {
  const auto family = request(kOpenMpi + env("LOCKSTEP_MPI=abi"));
  EXPECT_EQ(family.families, Families{standard});
  EXPECT_EQ(family.because, "LOCKSTEP_MPI is abi");
  EXPECT_EQ(request(kOpenMpi + env("LOCKSTEP_MPI=/opt/libmpi.so")).file, "/opt/libmpi.so");
  EXPECT_THROW(request(kOpenMpi + env("LOCKSTEP_MPI=opnempi")), InputError);
  EXPECT_THROW(request(kOpenMpi + env("LOCKSTEP_MPI=mpich")),
               InputError);  // not its mpirun
}

}  // namespace lockstep

// What Open MPI is told to open: only where all ranks are on one node, and nobody has chosen otherwise.

namespace lockstep::launch {
namespace {

constexpr const char* kVersion4 = "Open MPI v4.1.4";

const Environment kOneNode = env("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4");

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
    const ScopedPluginVariables named(
        std::vector<std::pair<std::string, std::string>>{{"TEST_PLUGIN", "sm"}});
    EXPECT_STREQ(std::getenv("TEST_PLUGIN"), "sm");
  }
  EXPECT_EQ(std::getenv("TEST_PLUGIN"), nullptr);
}

}  // namespace lockstep::launch
