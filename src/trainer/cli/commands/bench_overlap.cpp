// lockstep bench overlap: what of the gradients' exchange hides behind backward.
#include "lockstep/base/error.h"
#include "tools/bench/measure.h"
#include "tools/bench/overlap.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"
#include "trainer/cli/version.h"

namespace lockstep::cli {

int run_bench_overlap(const std::vector<std::string>& args) {
  bench::OverlapBench asked;
  std::string latency = "200us", bandwidth = "1Gbit";
  asked.command.config = "configs/mnist.yaml";
  Options options("bench overlap", "what of the gradients' exchange hides behind backward, and what does not",
                  {"mpirun -n 2 lockstep bench overlap",
                   "mpirun -n 2 lockstep bench overlap configs/pima.yaml --latency 1ms --bandwidth 100Mbit",
                   "srun lockstep bench overlap --set data.batch_size=32 --out overlap.html"});
  options.positional("CONFIG.yaml", asked.command.config, "what is trained; configs/mnist.yaml by default",
                     false);
  options.add("set", asked.command.sets, "KEY=VALUE", "override a key, as in launch.allreduce=tree");
  options.add("latency", latency, "TIME",
              "of the slow network: each message takes so much longer (default 200us)");
  options.add("bandwidth", bandwidth, "RATE",
              "of the slow network: a rank's line carries so much (default 1Gbit)");
  options.add("steps", asked.steps, "N", "steps that are timed of each way; the median counts (default 8)");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.add("launcher", asked.command.launcher, "NAME",
              "override the detection; none = alone (default auto)");
  if (!options.parse(args)) return kDone;
  try {
    asked.latency = bench::parse_latency(latency);
    asked.bandwidth = bench::parse_bandwidth(bandwidth);
    check(asked);
  } catch (const InputError& error) {  // every rank says the same: once is enough
    throw UsageError(error.what(), "lockstep bench overlap", error.hint());
  }
  asked.command.program = version_line();
  return bench::overlap(asked);
}

}  // namespace lockstep::cli
