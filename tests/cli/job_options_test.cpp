#include "support.h"
#include "tools/cluster/job_script.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

TEST(CliJobOptions, DescribeAJob) {
  cluster::JobRequest job;
  Options options("submit", "submits");
  add_job_options(options, job);
  options.parse(
      test::words_of("--site gadi --nodes 2 --gpus-per-node 4 --ranks-per-node 8 --cpus-per-rank 3 "
                     "--time 1h30m --queue gpu --account a00 --storage home --name mine "
                     "--set optim.lr=0.5"));
  EXPECT_EQ((std::vector{job.nodes, job.gpus_per_node, job.ranks_per_node, job.cores_per_rank}),
            (std::vector<int64_t>{2, 4, 8, 3}));
  EXPECT_EQ((std::vector{job.site, job.time, job.queue, job.account, job.storage, job.name, job.sets.at(0)}),
            (std::vector<std::string>{"gadi", "1h30m", "gpu", "a00", "home", "mine", "optim.lr=0.5"}));
}

}  // namespace
}  // namespace lockstep::cli
