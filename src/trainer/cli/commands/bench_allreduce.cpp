// lockstep bench allreduce: every way to sum over the ranks, beside its formula.
#include "lockstep/base/error.h"
#include "tools/bench/all_reduce.h"
#include "tools/bench/measure.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"
#include "trainer/cli/version.h"

namespace lockstep::cli {

int run_bench_allreduce(const std::vector<std::string>& args) {
  bench::AllReduceBench asked;
  std::string sizes = "4,256,4K,64K,1M,8M", latency = "0", bandwidth = "0";
  Options options("bench allreduce", "every way to sum over the ranks: right, how fast, and its formula",
                  {"mpirun -n 4 lockstep bench allreduce --algorithm all --out allreduce.html",
                   "mpirun -n 4 lockstep bench allreduce --latency 200us --bandwidth 1Gbit",
                   "srun lockstep bench allreduce --backend mpi --sizes 1K,1M,64M"});
  options.add("algorithm", asked.algorithm, "all|NAME",
              "one algorithm beside gloo, MPI and NCCL, or all of them (default all)");
  options.add("sizes", sizes, "LIST", "bytes (default " + sizes + ")");
  options.add("backend", asked.backend, "gloo|mpi",
              "whose lines carry the algorithms' messages (default gloo)");
  options.add("latency", latency, "TIME", "each message takes so much longer, as in 200us (default 0)");
  options.add("bandwidth", bandwidth, "RATE",
              "a rank's line carries so much, as in 1Gbit (default 0: no limit)");
  options.add("rounds", asked.rounds, "N", "how often each is timed; the median counts (default 7)");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.add("launcher", asked.launcher, "NAME", "override the detection; none = alone (default auto)");
  if (!options.parse(args)) return kDone;
  try {
    asked.sizes = bench::parse_sizes(sizes);
    asked.latency = bench::parse_latency(latency);
    asked.bandwidth = bench::parse_bandwidth(bandwidth);
    check(asked);
  } catch (const InputError& error) {  // every rank says the same: once is enough
    throw UsageError(error.what(), "lockstep bench allreduce", error.hint());
  }
  asked.program = version_line();
  return bench::all_reduce(asked);
}

}  // namespace lockstep::cli
