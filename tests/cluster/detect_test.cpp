// A site file from what schedulers say of themselves, also of uneven and foreign nodes.
#include <gtest/gtest.h>

#include "tools/cluster/site.h"

namespace lockstep::cluster {
namespace {

bool has(const FoundSite& found, const std::string& note) {
  for (const auto& line : found.notes) {
    if (line.find(note) != std::string::npos) return true;
  }
  return false;
}

TEST(Detect, ReadsPartitions) {
  const auto found = read_sinfo(
      "gpu*|4|128|2|32|gpu:a100:4(S:0-1)|2-00:00:00|1-4\n"
      "gpu*|2|256|2|64|(null)|2-00:00:00|1-4\n"
      "amd|9|128|2|64|gpu:mi250:8|30:00|1-infinite\n"
      "bad name|1|1|1|1|(null)|infinite|1\nnonsense\n");
  ASSERT_EQ(found.site.queues.size(), 2U);
  const auto& gpu = found.site.queues[0];
  EXPECT_EQ(found.site.queue, "gpu");
  EXPECT_EQ(found.site.threads_per_core, 2);
  EXPECT_EQ(gpu.gpus_per_node, 4);
  EXPECT_EQ(gpu.cores_per_node, 64);
  EXPECT_EQ(gpu.max_nodes, 4);
  EXPECT_EQ(gpu.max_time, std::chrono::hours(48));
  EXPECT_EQ(found.site.queues[1].max_nodes, 9);  // "infinite" is what is there
  EXPECT_EQ(found.site.queues[1].max_time, std::chrono::minutes(30));
  EXPECT_TRUE(has(found, "gpu: its nodes differ"));
  EXPECT_TRUE(has(found, "bad name"));
}

constexpr const char* kQueues =
    "Queue: workq\n    queue_type = Execution\n    resources_max.walltime = 48:00:00\n    "
    "resources_max.nodect = 8\n"
    "    enabled = True\n\nQueue: inner\n    from_route_only = True\n    enabled = True\n\n"
    "Queue: old\n    enabled = False\n";

TEST(Detect, ReadsQueuesThatTakeJobs) {
  const auto found =
      read_pbs(kQueues, "Server: pbs\n    default_queue = workq\n",
               "n1\n     resources_available.ncpus = 48\n     resources_available.ngpus = 4\n\n"
               "n2\n     resources_available.ncpus = 48\n     resources_available.ngpus = 4\n\n"
               "n3\n     resources_available.ncpus = 64\n");
  ASSERT_EQ(found.site.queues.size(), 1U);
  EXPECT_EQ(found.site.queue, "workq");
  EXPECT_EQ(found.site.queues[0].max_time, std::chrono::hours(48));
  EXPECT_EQ(found.site.queues[0].max_nodes, 8);
  EXPECT_EQ(found.site.queues[0].gpus_per_node, 4);
  EXPECT_TRUE(has(found, "nodes differ"));
}

TEST(Detect, WithoutALimitAQueueHasTheNodesThatAreThere) {
  const auto slurm =
      read_sinfo("all*|4|128|2|32|(null)|infinite|1-infinite\nall*|3|64|2|16|(null)|infinite|1-infinite\n");
  EXPECT_EQ(slurm.site.queues.at(0).max_nodes, 7);
  const auto pbs =
      read_pbs("Queue: workq\n    enabled = True\n", "",
               "n1\n     resources_available.ncpus = 48\n\nn2\n     resources_available.ncpus = 48\n");
  EXPECT_EQ(pbs.site.queues.at(0).max_nodes, 2);
}

TEST(Detect, DoesWithoutWhatDoesNotAnswer) {
  const auto found = read_pbs(kQueues, "", "");
  ASSERT_EQ(found.site.queues.size(), 1U);
  EXPECT_EQ(found.site.queue, "");
  EXPECT_EQ(found.site.queues[0].gpus_per_node, -1);
}

TEST(Detect, WritesWhatIsReadBack) {
  auto found =
      read_sinfo("gpu*|4|128|2|32|gpu:a100:4|2-00:00:00|1-4\nno|1|1|1|1|(null)|infinite|1-infinite\n");
  found.notes.emplace_back("evil\nscheduler: pbs");
  const auto text = as_yaml(found);
  const auto site = parse_site(text, "x.yaml");
  EXPECT_EQ(site.scheduler, "slurm");
  ASSERT_EQ(site.queues.size(), 2U);
  EXPECT_EQ(site.queues[0].cores_per_node, 64);
  EXPECT_EQ(site.queues[1].name, "no");
  EXPECT_EQ(site.queues[1].gpus_per_node, 0);
}

}  // namespace
}  // namespace lockstep::cluster
