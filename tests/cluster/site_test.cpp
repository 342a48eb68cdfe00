// Site files: read by their table of keys, and a wrong one is an error with its place.
#include "tools/cluster/site.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

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
  try {
    parse_site(GetParam().text, "s.yaml");
    FAIL() << "nothing was refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().what), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), GetParam().where);
    EXPECT_NE(error.hint().find(GetParam().hint), std::string::npos) << error.hint();
  }
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
        Wrong{"scheduler: pbs\nqueues: {a: {max_nodes: many}}\n", "queues.a.max_nodes must be a whole number",
              "s.yaml:2:25", "the most nodes"},
        Wrong{"scheduler: pbs\nqueues: {a: {max_time: 2x}}\n", "queues.a.max_time must be a time",
              "s.yaml:2:24", "longest job"},
        Wrong{"scheduler: pbs\nqueues: [a, b]\n", "queues must be a map", "s.yaml:2:9", "key: value"},
        Wrong{"scheduler: pbs\nqueues: {'a b': {}}\n", "the name of a queue must be one word", "s.yaml:2:10",
              ""},
        Wrong{"scheduler: pbs\nqueue: a\nqueues: {b: {}}\n", "has no queue a", "s.yaml", "its queues: b"},
        Wrong{"scheduler: pbs\ndirectives: [\"-l wd\\n#PBS -l x=1\"]\n", "one line", "s.yaml:2:14",
              "directives"},
        Wrong{"scheduler: pbs\ndirectives: -l wd\n", "directives must be a list", "s.yaml:2:13",
              "directives"},
        Wrong{"scheduler: pbs\nqueue_flag: q\n", "queue_flag must be an option", "s.yaml:2:13", "-q"},
        Wrong{"scheduler: pbs\nscratch: '}; touch x; ${A'\n", "scratch must be the name of a variable",
              "s.yaml:2:10", "local disk"},
        Wrong{"scheduler: pbs\nchunk: 'a b'\n", "chunk must be one word", "s.yaml:2:8", "select"},
        Wrong{"scheduler: pbs\nstorage: home\n", "storage needs storage_flag", "s.yaml:1:1",
              "storage_flag: storage"}));

}  // namespace
}  // namespace lockstep::cluster
