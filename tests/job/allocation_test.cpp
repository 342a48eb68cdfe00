#include <gtest/gtest.h>

#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "refusal.h"
#include "temp_folder.h"
#include "tools/job/job.h"

namespace lockstep::job {
namespace {

using test::has;
using test::refusal_of;

// "nodes ranks cores-of-a-rank ranks-per-node", where 0 ranks per node is as the scheduler laid them out
std::string shown(const Layout& layout) {
  return format("{} {} {} {}", layout.nodes, layout.ranks, layout.cores_per_rank, layout.ranks_per_node);
}

struct SlurmCase {
  const char* name;
  int nodes;
  const char *cpus, *tasks;
  Environment more;
  int threads;
  const char* expected;
};

Environment slurm(const SlurmCase& one) {
  Environment all = one.more;
  all["SLURM_JOB_NUM_NODES"] = format("{}", one.nodes);
  all["SLURM_JOB_CPUS_PER_NODE"] = one.cpus;
  all["SLURM_TASKS_PER_NODE"] = one.tasks;
  return all;
}

// Slurm 22.05 always sets the tasks' layout, and their number only where it was asked for.
TEST(SlurmAllocation, GivesEachGpuTaskOrCoreARank) {
  const Environment gpus = {
      {"SLURM_NTASKS", "1"}, {"SLURM_CPUS_PER_TASK", "32"}, {"SLURM_GPUS_ON_NODE", "4"}};
  const SlurmCase cases[] = {
      {"tasks and cores", 1, "12", "3", {{"SLURM_NTASKS", "3"}, {"SLURM_CPUS_PER_TASK", "4"}}, 1, "1 3 4 3"},
      {"whole nodes", 2, "32(x2)", "32(x2)", {}, 1, "2 64 1 32"},
      {"wide ranks", 2, "32(x2)", "4(x2)", {{"SLURM_CPUS_PER_TASK", "8"}}, 1, "2 8 8 4"},
      {"tasks on whole nodes", 2, "32(x2)", "4(x2)", {{"SLURM_NTASKS", "8"}}, 1, "2 8 8 4"},
      {"uneven tasks", 2, "32(x2)", "3,2", {{"SLURM_NTASKS", "5"}}, 1, "2 5 10 0"},
      {"uneven nodes", 2, "32,8", "32,8", {}, 1, "2 16 1 8"},
      {"GPUs", 2, "32(x2)", "32(x2)", {{"SLURM_GPUS_ON_NODE", "4"}}, 1, "2 8 8 4"},
      {"one task for four GPUs", 1, "32", "1", gpus, 1, "1 4 8 4"},
      {"an outer job's tasks", 1, "2", "2", {{"SLURM_NTASKS", "7"}}, 1, "1 2 1 2"},
      {"a number that the user set", 1, "2", "2", {{"LOCKSTEP_RANKS_PER_NODE", "4"}}, 1, "1 4 1 4"},
      {"Slurm counts threads", 1, "16", "16", {}, 2, "1 8 1 8"},
      {"threads", 1, "16", "2", {{"SLURM_NTASKS", "2"}, {"SLURM_CPUS_PER_TASK", "8"}}, 2, "1 2 4 2"}};
  for (const auto& one : cases) {
    const auto environment = slurm(one);
    EXPECT_EQ(shown(lay_out(slurm_allocation(environment, {}, one.threads), environment)), one.expected)
        << one.name;
  }
}

TEST(SlurmAllocation, AddsTheComponentsOfAHeterogeneousJob) {
  Environment environment = {{"SLURM_HET_SIZE", "2"}};
  for (const auto& [name, first, second] : {std::tuple{"SLURM_JOB_NUM_NODES", "1", "2"},
                                            {"SLURM_JOB_CPUS_PER_NODE", "4", "2(x2)"},
                                            {"SLURM_TASKS_PER_NODE", "2", "1(x2)"}}) {
    environment[std::string(name) + "_HET_GROUP_0"] = first;
    environment[std::string(name) + "_HET_GROUP_1"] = second;
  }
  EXPECT_EQ(shown(lay_out(slurm_allocation(environment, {}, 1), environment)), "3 4 2 0");
  environment["LOCKSTEP_RANKS_PER_NODE"] = "2";
  EXPECT_TRUE(
      has(refusal_of([&] { lay_out(slurm_allocation(environment, {}, 1), environment); }), "heterogeneous"));
}

TEST(SlurmAllocation, RefusesGpusThatLieUnevenly) {
  const SlurmCase uneven = {"", 2, "2(x2)", "2(x2)", {{"SLURM_GPUS_ON_NODE", "4"}, {"SLURM_GPUS", "6"}},
                            1,  ""};
  EXPECT_TRUE(has(refusal_of([&] { slurm_allocation(slurm(uneven), {}, 1); }),
                  "a total of 6 GPUs is not spread evenly over 2 nodes"));
}

TEST(Layout, WarnsOfCoresThatAreShared) {
  const auto warnings = [](const SlurmCase& one) {
    const auto environment = slurm(one);
    return lay_out(slurm_allocation(environment, {}, 1), environment).warnings;
  };
  EXPECT_TRUE(has(warnings({"", 2, "2(x2)", "2(x2)", {{"SLURM_GPUS_ON_NODE", "4"}}, 1, ""}).at(0),
                  "4 ranks share 2 cores"));
  const Environment few = {{"LOCKSTEP_RANKS_PER_NODE", "2"}, {"LOCKSTEP_CPUS_PER_RANK", "1"}};
  EXPECT_TRUE(has(warnings({"", 2, "32(x2)", "32(x2)", few, 1, ""}).at(0), "uses 4 of its 64 cores"));
  EXPECT_TRUE(warnings({"", 2, "32(x2)", "32(x2)", {}, 1, ""}).empty());
}

struct PbsCase {
  const char *name, *select, *hosts, *exec_host, *exec_vnode, *expected;
};

TEST(PbsAllocation, ReadsChunksAndTheNodeFile) {
  const PbsCase cases[] = {
      {"ranks on a node", "1:ncpus=8:mpiprocs=2", "a a", "a/0*8", "(a:ncpus=8)", "1 2 4 2"},
      {"nothing said of ranks", "1:ncpus=8", "a", "a/0*8", "(a:ncpus=8)", "1 8 1 8"},
      {"chunks on one host", "2:ncpus=2", "a a", "a/0*2+a/1*2", "(a:ncpus=2)+(a:ncpus=2)", "1 2 2 2"},
      {"chunks on two hosts", "2:ncpus=2", "a b", "a/0*2+b/0*2", "(a:ncpus=2)+(b:ncpus=2)", "2 4 1 2"},
      {"GPUs of chunks on one host", "2:ncpus=8:ngpus=4", "a a", "a/0*8+a/1*8",
       "(a:ncpus=8:ngpus=4)+(a:ncpus=8:ngpus=4)", "1 8 2 8"},
      {"a chunk over a host's vnodes", "2:ncpus=8:ngpus=2", "a b", "a/0*8+b/0*8",
       "(a[0]:ncpus=4:ngpus=1:mem=1.5gb+a[1]:ncpus=4:ngpus=1)+(b[0]:ncpus=8:ngpus=2)", "2 4 4 2"},
      {"uneven chunks", "1:ncpus=8:mpiprocs=2+1:ncpus=2:mpiprocs=1", "a a b", "a/0*8+b/0*2",
       "(a:ncpus=8)+(b:ncpus=2)", "2 3 2 0"},
      {"no record", "", "a a", "", "", "1 2 1 2"}};
  for (const auto& one : cases) {
    std::vector<std::string> lines;
    for (const auto& host : base::split(one.hosts, ' ')) lines.push_back(host + ".site.org");
    const Environment record = {
        {"Resource_List.select", one.select}, {"exec_host", one.exec_host}, {"exec_vnode", one.exec_vnode}};
    EXPECT_EQ(shown(lay_out(pbs_allocation({{"NCPUS", "2"}}, record, lines, 1), {})), one.expected)
        << one.name;
  }
}

TEST(PbsAllocation, VisibleGpusAreThoseOfTheFirstNode) {
  const Environment record = {{"exec_host", "a/0*8+b/0*8"}, {"exec_vnode", "(a:ngpus=4)+(b:ngpus=1)"}};
  for (const auto& [fields, gpus] : {std::pair{record, 3}, {{}, 4}})
    EXPECT_EQ(sum_of(&Node::gpus, pbs_allocation({{"CUDA_VISIBLE_DEVICES", "2,3"}}, fields, {"a", "b"}, 1)),
              gpus);
}

TEST(ThreadsPerCore, AreThoseOfWhatTheSchedulerCounts) {
  const test::TempFolder folder;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const auto place = folder / format("cpu{}/topology", cpu);
    std::filesystem::create_directories(place);
    std::ofstream(place + "/thread_siblings_list") << cpu % 4 << ',' << cpu % 4 + 4 << '\n';
  }
  const auto path = folder.path().string();
  EXPECT_EQ(threads_per_core({}, 8, path), 2);
  EXPECT_EQ(threads_per_core({}, 4, path), 1);
  EXPECT_EQ(threads_per_core({{"LOCKSTEP_THREADS_PER_CORE", "1"}}, 8, path), 1);
  EXPECT_EQ(threads_per_core({}, 8, path + "/none"), 1);
}

TEST(Settings, ThatAreNoNumbersAreRefused) {
  for (const char* text : {"three", "-1", "2x"})
    EXPECT_TRUE(has(refusal_of([&] {
                      count({{"LOCKSTEP_MAX_RESTARTS", text}}, "LOCKSTEP_MAX_RESTARTS", 1);
                    }),
                    text));
}

}  // namespace
}  // namespace lockstep::job
