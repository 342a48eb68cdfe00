// Site files: read by their table of keys, and a wrong one is an error with its place.
#include "tools/cluster/site.h"

#include <gtest/gtest.h>

#include "lockstep/base/files/file.h"
#include "refusal.h"

namespace lockstep::cluster {
namespace {

TEST(Site, HoldsWhatItsFileSays) {
  const auto site = parse_site(
      "scheduler: pbs\nqueue: gpu\naccount: required\ndirectives: [-l wd]\n"
      "queues: {gpu: {gpus_per_node: 4, max_time: 48h}, cpu: {}}\n",
      "my/mine.yaml");
  EXPECT_EQ(site.name, "mine");
  EXPECT_EQ(site.queue_flag, "-q");
  EXPECT_EQ(site.directives, std::vector<std::string>{"-l wd"});
  EXPECT_EQ(find_queue(site, "").gpus_per_node, 4);
  EXPECT_EQ(find_queue(site, "").max_time, std::chrono::hours(48));
  EXPECT_EQ(find_queue(site, "cpu").gpus_per_node, -1);
}

TEST(Site, OfWhichNoQueueIsKnownTakesAny) {
  const auto site = parse_site("scheduler: slurm\n", "x.yaml");
  EXPECT_EQ(find_queue(site, "whatever").name, "whatever");
  EXPECT_EQ(find_queue(site, "").name, "");
}

struct Wrong {
  const char *text, *what, *where, *hint;
};

class WrongSite : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongSite, IsAnErrorWithItsPlace) {
  const auto error = test::error_from([] { parse_site(GetParam().text, "s.yaml"); });
  EXPECT_TRUE(test::has(error.what(), GetParam().what));
  EXPECT_EQ(error.where(), GetParam().where);
  EXPECT_TRUE(test::has(error.hint(), GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    , WrongSite,
    ::testing::Values(
        Wrong{"scheduler: pbs\nacount: required\n", "unknown key acount", "s.yaml:2:1",
              "did you mean account?"},
        Wrong{"scheduler: slrum\n", "scheduler must be one of pbs, slurm", "s.yaml:1:12",
              "did you mean slurm?"},
        Wrong{"account: optional\n", "scheduler is missing", "s.yaml:1:1", "scheduler: slurm"},
        Wrong{"- pbs\n", "a site file must be a map", "s.yaml:1:1", "key: value"},
        Wrong{"", "a site file must be a map", "s.yaml:1:1", "key: value"},
        Wrong{"scheduler: pbs\nscheduler: pbs\n", "duplicate key", "s.yaml:2:1", "s.yaml:1:1"},
        Wrong{"scheduler: pbs\nqueues: {a: {gpus: 4}}\n", "unknown key gpus", "s.yaml:2:14",
              "docs/how-to/sites.md"},
        Wrong{"scheduler: pbs\nqueues: {a: {max_nodes: many}}\n", "queues.a.max_nodes must be an integer",
              "s.yaml:2:25", "the most nodes"},
        Wrong{"scheduler: pbs\nqueues: {a: {max_time: 2x}}\n", "queues.a.max_time must be a duration",
              "s.yaml:2:24", "use the units"},
        Wrong{"scheduler: pbs\nqueues: [a, b]\n", "queues must be a map", "s.yaml:2:9", "key: value"},
        Wrong{"scheduler: pbs\nqueues: {'a b': {}}\n", "the name of a queue must be one word", "s.yaml:2:10",
              ""},
        Wrong{"scheduler: pbs\nqueue: a\nqueues: {b: {}}\n", "has no queue a", "s.yaml", "choose one of b"},
        Wrong{"scheduler: pbs\ndirectives: [\"-l wd\\n#PBS -l x=1\"]\n", "one line", "s.yaml:2:14",
              "directives"},
        Wrong{"scheduler: pbs\ndirectives: -l wd\n", "directives must be a list", "s.yaml:2:13", "[a, b]"},
        Wrong{"scheduler: pbs\nqueue_flag: q\n", "queue_flag must be an option", "s.yaml:2:13", "-q"},
        Wrong{"scheduler: pbs\nscratch: '}; touch x; ${A'\n", "scratch must be the name of a variable",
              "s.yaml:2:10", "local disk"},
        Wrong{"scheduler: pbs\nchunk: 'a b'\n", "chunk must be one word", "s.yaml:2:8", "select"},
        Wrong{"scheduler: pbs\nstorage: home\n", "storage needs storage_flag", "s.yaml:1:1",
              "storage_flag: storage"}));

// A site file from what schedulers say of themselves, also of uneven and foreign nodes.

bool has(const FoundSite& found, const std::string& note) {
  for (const auto& line : found.notes)
    if (line.find(note) != std::string::npos) return true;
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
  const auto recorded = base::read_small_file("tests/fixtures/slurm/22.05/sinfo.txt", 1 << 20, "sinfo");
  EXPECT_EQ(read_sinfo(recorded).site.queue, "main");
  EXPECT_EQ(read_sinfo(recorded).site.queues.at(1).cores_per_node, 32);
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
  const auto said = [](const char* file) {
    return base::read_text(std::string("tests/fixtures/openpbs-23.06.06/") + file);
  };
  const auto pbs = read_pbs(said("queues"), said("server"), said("pbsnodes"));
  EXPECT_EQ(pbs.site.queue, "workq");
  EXPECT_EQ(pbs.site.queues.at(0).max_nodes, 3);
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
