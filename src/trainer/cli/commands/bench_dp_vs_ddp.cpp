// lockstep bench dp-vs-ddp: one process with many devices against many processes.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/launch/process/error_reporter.h"
#include "tools/bench/dp_vs_ddp.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

void check_numbers(const bench::DpVsDdp& wanted) {
  if (wanted.devices < 2)
    throw InputError("one device has nothing to compare", "--devices", "give two or more");
  if (wanted.steps < 1) throw InputError("there is nothing to time", "--steps", "give one or more");
  if (wanted.repeats < 1) throw InputError("there is nothing to time", "--repeats", "give one or more");
}

// One process of the bench, which starts these itself: no option for people.
std::string take_part(std::vector<std::string>& args) {
  if (args.size() < 2 || args[0] != "--part") return "";
  const auto part = args[1];
  args.erase(args.begin(), args.begin() + 2);
  return part;
}

// It starts its own ranks: of those that a launcher started, the first is enough.
int bench_alone(const bench::DpVsDdp& wanted) {
  const auto self = launch::rank_by_environment(launch::current_environment());
  if (self.rank > 0) return kDone;
  bench::dp_vs_ddp(wanted);
  return kDone;
}

}  // namespace

int run_bench_dp_vs_ddp(const std::vector<std::string>& given) {
  auto args = given;
  bench::DpVsDdp wanted;
  const auto part = take_part(args);
  Options options("bench dp-vs-ddp", "DataParallel, the same with the loss inside, and DDP on the same work",
                  {"lockstep bench dp-vs-ddp", "lockstep bench dp-vs-ddp --devices 4 --out dp.html"});
  options.add("config", wanted.config, "CONFIG.yaml", "what is trained (default configs/mnist.yaml)");
  options.add("set", wanted.sets, "KEY=VALUE", "override a key of it; may be given again");
  options.add("devices", wanted.devices, "N", "devices, and ranks of DDP (default 2)");
  options.add("steps", wanted.steps, "N", "timed steps of a run (default 20)");
  options.add("repeats", wanted.repeats, "N", "runs of each way, in turn (default 3)");
  options.add("out", wanted.out, "FILE", "also leave a page with charts and tables (.html)");
  if (!options.parse(args)) return kDone;
  check_numbers(wanted);
  if (part.empty()) return bench_alone(wanted);
  output::print(bench::outcome_of(part, wanted));
  return kDone;
}

}  // namespace lockstep::cli
