// lockstep bench dp-vs-ddp: one process with many devices against many processes.
#include "lockstep/base/error.h"
#include "lockstep/base/output.h"
#include "lockstep/bench/dp_vs_ddp.h"
#include "lockstep/cli/options.h"

namespace lockstep::cli {
namespace {

void check(const bench::DpVsDdp& wanted) {
  if (wanted.devices < 2)
    throw InputError("one device has nothing to compare", "--devices", "give two or more");
  if (wanted.steps < 1) throw InputError("there is nothing to time", "--steps", "give one or more");
  if (wanted.repeats < 1) throw InputError("there is nothing to time", "--repeats", "give one or more");
}

}  // namespace

int run_bench_dp_vs_ddp(const std::vector<std::string>& args) {
  bench::DpVsDdp wanted;
  std::string part;
  Options options("bench dp-vs-ddp", "DataParallel, the same with the loss inside, and DDP on the same work",
                  {"lockstep bench dp-vs-ddp", "lockstep bench dp-vs-ddp --devices 4 --out dp.html"});
  options.add("config", wanted.config, "CONFIG.yaml", "what is trained (default configs/mnist.yaml)");
  options.add("set", wanted.sets, "KEY=VALUE", "overrule a key of it; may be given again");
  options.add("devices", wanted.devices, "N", "devices, and ranks of DDP (default 2)");
  options.add("steps", wanted.steps, "N", "timed steps of a run (default 20)");
  options.add("repeats", wanted.repeats, "N", "runs of each way, in turn (default 3)");
  options.add("out", wanted.out, "FILE.html", "also leave a page with the plots");
  options.add("part", part, "WAY", "be one process of it: the bench starts these itself");
  if (!options.parse(args)) return kDone;
  check(wanted);
  if (part.empty())
    bench::dp_vs_ddp(wanted);
  else
    output::print(bench::outcome_of(part, wanted));
  return kDone;
}

}  // namespace lockstep::cli
