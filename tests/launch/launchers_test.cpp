// Every launcher of the table, with the environment that it really sets.
#include "environments.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep {
using namespace test;

namespace {

struct Expected {
  const char* name;
  launch::Environment environment;
  const char* launcher;
  const char* scheduler;
  bool mpi;
  int rank, world, local_rank, local_world, node_rank, nodes;
};

// The third column: MPI is called, so the numbers below are what the environment alone would have said.
const Expected kCases[] = {
    {"torchrun", kTorchrun, "torchrun", "none", false, 2, 4, 0, 2, 1, 2},
    {"open mpi", kOpenMpi, "openmpi", "none", true, 3, 4, 1, 2, 1, 2},
    {"open mpi 5", without(kOpenMpi, {"OMPI_MCA_orte_hnp_uri"}) + env("PRTE_LAUNCHED=1"), "openmpi", "none",
     true, 3, 4, 1, 2, 1, 2},
    {"pals", kPals, "pals", "pbs", true, 5, 8, 1, 4, 1, 2},
    {"hydra", kHydra, "pmi", "none", true, 2, 4, 0, 2, 1, 2},
    {"flux without pmi", kFlux, "flux", "flux", false, 3, 4, 1, 2, 1, 2},
    {"flux with pmix", kFlux + env("PMIX_RANK=3"), "flux", "flux", true, 3, 4, 1, 2, 1, 2},
    {"jsrun", kJsrun, "jsrun", "lsf", false, 2, 4, 0, 4, 0,
     1},  // how many share a node is known once they meet
    {"srun", kSrun, "slurm", "slurm", false, 3, 4, 1, 2, 1, 2},
    {"srun alone, no sbatch", without(kSrun, {"SLURM_NTASKS", "SLURM_NPROCS"}), "slurm", "slurm", false, 3, 4,
     1, 2, 1, 2},
    {"srun of one task",
     kSrun +
         env("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 "
             "SLURM_STEP_TASKS_PER_NODE=1"),
     "slurm", "slurm", false, 0, 1, 0, 1, 0, 1},
    {"nothing", {}, "none", "none", false, 0, 1, 0, 1, 0, 1},
};

}  // namespace

TEST(Launchers, EachIsKnownByItsOwnVariables) {
  for (const auto& expected : kCases) {
    SCOPED_TRACE(expected.name);
    EXPECT_EQ(launch::detect_launcher(expected.environment), expected.launcher);
    EXPECT_EQ(launch::wants_mpi(expected.environment), expected.mpi);
    const Job job = launch::identify(expected.environment, std::nullopt);
    EXPECT_EQ(job.launcher, expected.launcher);
    EXPECT_EQ(job.scheduler, expected.scheduler);
    EXPECT_EQ((std::vector{job.rank, job.world, job.local_rank, job.local_world, job.node_rank, job.nodes}),
              (std::vector{expected.rank, expected.world, expected.local_rank, expected.local_world,
                           expected.node_rank, expected.nodes}));
    EXPECT_TRUE(job.warnings.empty()) << job.warnings.front();
  }
}

TEST(Launchers, EveryValueHasItsReason) {
  for (const auto& expected : kCases) {
    SCOPED_TRACE(expected.name);
    const Job job = launch::identify(expected.environment, std::nullopt);
    for (const char* field : {"rank", "world", "local_rank", "local_world", "node_rank", "nodes", "launcher",
                              "scheduler", "host"}) {
      EXPECT_FALSE(job.because.at(field).empty()) << field;
    }
  }
  EXPECT_EQ(launch::identify(kSrun, std::nullopt).because.at("rank"), "SLURM_PROCID=3");
  EXPECT_EQ(launch::identify(kSrun, std::nullopt).because.at("local_world"),
            "entry 1 of SLURM_STEP_TASKS_PER_NODE=2(x2)");
  EXPECT_EQ(launch::identify(kSrun, std::nullopt).job_id, "42");
}

TEST(Launchers, AreBelievedInOrder) {
  // all at once, and the first speaker taken away each time
  launch::Environment everyone = kTorchrun + kOpenMpi + kPals + kHydra + kFlux + kJsrun + kSrun;
  const std::vector<std::pair<std::string, std::vector<const char*>>> order = {
      {"torchrun", {"RANK", "WORLD_SIZE"}},
      {"openmpi", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
      {"pals", {"PALS_RANKID", "PALS_SIZE"}},
      {"pmi", {"PMI_RANK", "PMI_SIZE"}},
      {"flux", {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}},
      {"jsrun", {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}},
      {"pmix", {"PMIX_RANK"}},
      {"slurm", {"SLURM_STEP_NUM_TASKS"}},
      {"none", {}}};
  for (const auto& [name, variables] : order) {
    EXPECT_EQ(launch::detect_launcher(everyone), name);
    everyone = without(everyone, variables);
  }
}

TEST(Launchers, AnExplicitChoiceOverrules) {
  const launch::Environment both = kTorchrun + kSrun;
  EXPECT_EQ(launch::identify(both, std::nullopt).rank, 2);
  const Job job = launch::identify(both, std::nullopt, "slurm");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.because.at("launcher"), "--launcher slurm");
  EXPECT_EQ(launch::identify(both, std::nullopt, "none").world, 1);
}

TEST(Launchers, AChoiceThatIsNotThereOrUnknownIsRefused) {
  EXPECT_TRUE(
      holds(refusal(kSrun, {}, "openmpi"), {"'openmpi' was chosen", "OMPI_COMM_WORLD_RANK", "mpirun"}));
  EXPECT_TRUE(holds(refusal({}, {}, "sbatch"), {"unknown launcher 'sbatch'", "torchrun", "slurm", "none"}));
}

TEST(Launchers, PmixAloneNeedsMpiForTheSize) {
  const launch::Environment pmix = env("PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.42.0");
  EXPECT_EQ(launch::detect_launcher(pmix), "pmix");
  EXPECT_TRUE(launch::wants_mpi(pmix));
  EXPECT_TRUE(holds(refusal(pmix), {"PMIX_RANK=1", "no variable says how many ranks", "mpirun"}));
  EXPECT_EQ(launch::identify(pmix, launch::MpiFacts{.rank = 1, .world = 2}).world, 2);
}

TEST(Launchers, PalsMayLackTheSize) {
  const launch::Environment pals = without(kPals, {"PALS_SIZE"});
  EXPECT_EQ(launch::detect_launcher(pals), "pals");
  EXPECT_TRUE(holds(refusal(pals), {"PALS_RANKID=5", "no variable says"}));
  const launch::MpiFacts facts{
      .rank = 5, .world = 8, .local_rank = 1, .local_world = 4, .node_rank = 1, .nodes = 2};
  EXPECT_EQ(launch::identify(pals, facts).world, 8);
}

TEST(Launchers, JsrunUsesMpiOnlyWithPmix) {
  EXPECT_FALSE(launch::wants_mpi(kJsrun));
  EXPECT_TRUE(launch::wants_mpi(kJsrun + env("PMIX_RANK=2")));
}

TEST(Launchers, UnequalNodesOfAnSrunStep) {
  const launch::Environment uneven = kSrun + env("SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_LOCALID=0");
  const Job job = launch::identify(uneven, std::nullopt);
  EXPECT_EQ(job.local_world, 1);
  EXPECT_EQ(job.node_rank, 1);
  const launch::Environment first = uneven + env("SLURM_NODEID=0 SLURM_LOCALID=2 SLURM_PROCID=2");
  EXPECT_EQ(launch::identify(first, std::nullopt).local_world, 3);
}

TEST(Launchers, TorqueIsBelievedOnlyWhenChosen) {
  const launch::Environment pbsdsh =
      env("PBS_JOBID=8.torque PBS_VNODENUM=3 PBS_NP=4 PBS_NUM_PPN=2 PBS_NODENUM=1 PBS_NUM_NODES=2");
  const Job job = launch::identify(pbsdsh, std::nullopt, "torque");
  EXPECT_EQ((std::vector{job.rank, job.world, job.local_rank, job.node_rank}), (std::vector{3, 4, 1, 1}));
  EXPECT_EQ(job.scheduler, "torque");
  EXPECT_EQ(launch::detect_launcher(pbsdsh), "none");
}

TEST(Launchers, TorchrunsVariablesByHandMayBeFewer) {
  const launch::Environment by_hand = env("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1");
  const Job job = launch::identify(by_hand, std::nullopt);
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.guessed, (std::vector<std::string>{"local_world", "nodes", "node_rank"}));
  EXPECT_FALSE(launch::is_known_single_node(job));
}

TEST(Launchers, AreTheRowsOfTheDocsInOrder) {
  const auto page = base::read_text("docs/reference/launchers.md");
  const std::string table = page.substr(0, page.find("\n| none of them"));
  constexpr const char* kMpi[] = {"| no |", "| yes |", "| with P"};  // by UsesMpi
  size_t at = 0;
  for (const auto& row : launch::launchers()) {
    if (row.only_by_choice) continue;
    at = table.find("\n| `", at) + 1;
    ASSERT_NE(at, std::string::npos + 1) << row.name;
    const auto line = table.substr(at, table.find('\n', at) - at);
    const auto name = format("`{}`", row.name), rank = format("`{}`", row.rank);
    EXPECT_TRUE(holds(line, {name.c_str(), rank.c_str(), kMpi[static_cast<size_t>(row.mpi)]}));
  }
  EXPECT_EQ(table.find("\n| `", at), std::string::npos);
}

}  // namespace lockstep
