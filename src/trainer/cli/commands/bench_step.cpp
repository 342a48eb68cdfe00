// lockstep bench step: where the time of a training's step goes, and how far it is from the machine's peak.
#include "lockstep/base/error.h"
#include "tools/bench/step.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"
#include "trainer/cli/version.h"

namespace lockstep::cli {

int run_bench_step(const std::vector<std::string>& args) {
  bench::StepBench asked;
  int64_t steps = 0;
  Options options("bench step", "where a step's time goes, and how far it is from the machine's peak",
                  {"lockstep bench step configs/mnist.yaml",
                   "mpirun -n 2 lockstep bench step configs/mnist.yaml --set train.precision=bf16",
                   "srun lockstep bench step configs/pima.yaml --steps 1000 --json"});
  options.positional("CONFIG.yaml", asked.command.config, "what is trained");
  options.add("set", asked.command.sets, "KEY=VALUE", "override a key of it; may be given again");
  options.add("steps", steps, "N", "steps that are timed (default: as many as take 5 seconds, 3 at least)");
  options.flag("json", asked.json, "for programs: times in seconds, the ranks one by one");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.add("launcher", asked.command.launcher, "NAME",
              "override the detection; none = alone (default auto)");
  if (!options.parse(args)) return kDone;
  if (options.given("steps")) asked.steps = steps;
  try {
    check(asked);
  } catch (const InputError& error) {  // every rank says the same: once is enough
    throw UsageError(error.what(), "lockstep bench step", error.hint());
  }
  asked.command.program = version_line();
  return bench::step(asked);
}

}  // namespace lockstep::cli
