#include "trainer/cli/job_options.h"

namespace lockstep::cli {

void add_job_options(Options& options, submit::WantedJob& job) {
  options.add("site", job.site, "SITE", "a site by name (lockstep site list), or the path of its file");
  options.add("nodes", job.nodes, "N", "nodes of the job (1)");
  options.add("gpus-per-node", job.gpus_per_node, "N", "GPUs of each node (all that the site's have)");
  options.add("ranks-per-node", job.ranks_per_node, "N",
              "ranks on each node (one a GPU; without GPUs the site's, or 2)");
  options.add("cpus-per-rank", job.cores_per_rank, "N", "cores of a rank (its share)");
  options.add("time", job.time, "TIME", "how long: 30m, 2h, 1h30m (30m)");
  options.add("queue", job.queue, "NAME", "queue, partition or QOS (the site's default)");
  options.add("account", job.account, "NAME", "account or project that is charged");
  options.add("storage", job.storage, "NAMES", "file systems that the job needs, where a site asks (PBS)");
  options.add("name", job.name, "NAME", "the job's name (lockstep)");
  options.add("set", job.sets, "KEY=VALUE", "override a key of the config; may be given again");
}

}  // namespace lockstep::cli
