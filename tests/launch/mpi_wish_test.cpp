// Which MPI answers: by the launcher, by the program that started the ranks, by what is loaded, by
// LOCKSTEP_MPI.
#include "lockstep/launch/process/mpi.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "environments.h"

namespace lockstep {
using namespace test;
using enum mpi::Family;
using Families = std::vector<mpi::Family>;

namespace {

mpi::Wish wish(const launch::Environment& environment, const std::vector<std::string>& above = {}) {
  return launch::wish_for_mpi(environment, "auto", above);
}

}  // namespace

TEST(MpiWish, TheLauncherDecidesTheFamily) {
  EXPECT_EQ(wish(kOpenMpi).families, (Families{open_mpi, standard}));
  EXPECT_EQ(wish(kHydra).families.front(), mpich);
  EXPECT_EQ(wish(kPals).families.front(), mpich);
  EXPECT_EQ(wish(kOpenMpi).because, "OMPI_COMM_WORLD_RANK is set");
}

TEST(MpiWish, ByChoiceAnyFamilyWillDo) {
  const auto any = launch::wish_for_mpi({}, "mpi", {});
  EXPECT_EQ(any.families.size(), 3u);
  EXPECT_EQ(any.because, "--launcher mpi");
}

TEST(MpiWish, TheLibraryBesideTheProgramThatStartedTheRanksComesFirst) {
  const auto found =
      wish(kHydra + launch::Environment{{"LD_LIBRARY_PATH", "/loaded:"}},
           {"/usr/bin/bash", "/opt/mpich/bin/hydra_pmi_proxy", "/opt/mpich/bin/mpiexec.hydra"});
  ASSERT_GE(found.folders.size(), 2u);
  EXPECT_EQ(found.folders.front(), "/opt/mpich/lib");
  EXPECT_EQ(found.folders.back(), "/loaded");
  EXPECT_NE(found.because.find("/opt/mpich/bin/hydra_pmi_proxy"), std::string::npos);
}

// Open MPI would say "0 of 1" to every rank that hydra starts.
TEST(MpiWish, HydrasRanksAreNeverOpenMpis) {
  const auto outer_jobs_variables = kOpenMpi;
  for (const auto& environment : {kHydra, outer_jobs_variables})
    EXPECT_EQ(wish(environment, {"/usr/bin/hydra_pmi_proxy"}).families, (Families{mpich, standard}));
}

TEST(MpiWish, TheUserHasTheLastWord) {
  const auto family = wish(kOpenMpi + launch::Environment{{"LOCKSTEP_MPI", "abi"}});
  EXPECT_EQ(family.families, Families{standard});
  EXPECT_EQ(family.because, "LOCKSTEP_MPI is abi");
  EXPECT_EQ(wish(kOpenMpi + launch::Environment{{"LOCKSTEP_MPI", "/opt/libmpi.so"}}).file, "/opt/libmpi.so");
  EXPECT_THROW(wish(kOpenMpi + launch::Environment{{"LOCKSTEP_MPI", "opnempi"}}), InputError);
  EXPECT_THROW(wish(kOpenMpi + launch::Environment{{"LOCKSTEP_MPI", "mpich"}}),
               InputError);  // not its mpirun
}

}  // namespace lockstep
