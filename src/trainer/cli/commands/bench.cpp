// lockstep bench: what is measured, by name.
#include "trainer/cli/command_group.h"

// To add a bench NAME: write `int run_bench_NAME(const std::vector<std::string>& args)` (namespace
// lockstep::cli) in cli/commands/bench_NAME.cpp, and add ONE line here: function, name, summary.
#define LOCKSTEP_BENCHES(X)                                                                         \
  X(step, "step", "where a step's time goes, and how far it is from the machine's peak")            \
  X(allreduce, "allreduce", "every way to sum over the ranks: right, how fast, and its formula")    \
  X(overlap, "overlap", "what of the gradients' exchange hides behind backward, and what does not") \
  X(dp_vs_ddp, "dp-vs-ddp", "one process with many devices against many processes")

namespace lockstep::cli {

#define LOCKSTEP_DECLARE_BENCH(function, name, summary) \
  int run_bench_##function(const std::vector<std::string>& args);
LOCKSTEP_BENCHES(LOCKSTEP_DECLARE_BENCH)

int run_bench(const std::vector<std::string>& args) {
#define LOCKSTEP_BENCH_ROW(function, name, summary) {name, summary, run_bench_##function},
  static const CommandGroup group = {
      .name = "bench",
      .summary = "measures what a page of the docs explains, on this machine",
      .kind = "bench",
      .kinds = "benches",
      .examples = {"lockstep bench step configs/mnist.yaml",
                   "mpirun -n 4 lockstep bench allreduce --algorithm all --out allreduce.html"},
      .members = {LOCKSTEP_BENCHES(LOCKSTEP_BENCH_ROW)}};
  return run_group(group, args);
}

}  // namespace lockstep::cli
