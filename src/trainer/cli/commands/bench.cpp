// lockstep bench: what is measured, by name.
#include "tools/bench/bench.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/launch/process/leave.h"
#include "tools/bench/measure.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

// Every rank finds the same mistake, so one of them reports it.
template <class Check>
void checked(const std::string& command, const Check& check) {
  try {
    check();
  } catch (const InputError& error) {
    throw UsageError(error.what(), "lockstep " + command, error.hint());
  }
}

void check_numbers(const bench::DpVsDdpBench& wanted) {
  if (wanted.devices < 2)
    throw InputError("there is nothing to compare with one device", "--devices", "give two or more");
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
int bench_alone(const bench::DpVsDdpBench& wanted) {
  if (launch::rank_by_environment(launch::current_environment()).rank <= 0) bench::dp_vs_ddp(wanted);
  return kDone;
}

}  // namespace

// lockstep bench allreduce: every way to sum over the ranks, beside its formula.

static int run_bench_allreduce(const std::vector<std::string>& args) {
  bench::AllReduceBench asked;
  std::string sizes = "4,256,4K,64K,1M,8M", latency = "0", bandwidth = "0";
  Options options("bench allreduce",
                  "checks and times each all-reduce algorithm against a latency-bandwidth model",
                  {"mpirun -n 4 lockstep bench allreduce --algorithm all --out allreduce.html",
                   "mpirun -n 4 lockstep bench allreduce --latency 200us --bandwidth 1Gbit",
                   "srun lockstep bench allreduce --backend mpi --sizes 1K,1M,64M"});
  options.add("algorithm", asked.algorithm, "all|NAME",
              "the algorithm to compare with gloo, MPI and NCCL (default: all algorithms)");
  options.add("sizes", sizes, "LIST", "bytes (default " + sizes + ")");
  options.add("backend", asked.backend, "gloo|mpi", "the backend that sends messages (default gloo)");
  options.add("latency", latency, "TIME", "delay added to each message, as in 200us (default 0)");
  options.add("bandwidth", bandwidth, "RATE",
              "the bandwidth of each rank, as in 1Gbit (default 0: no limit)");
  options.add("rounds", asked.rounds, "N", "rounds per algorithm and size; prints their median (default 7)");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.launcher(asked.launcher);
  if (!options.parse(args)) return kDone;
  checked("bench allreduce", [&] {
    asked.sizes = bench::parse_sizes(sizes);
    asked.latency = bench::parse_latency(latency);
    asked.bandwidth = bench::parse_bandwidth(bandwidth);
    check(asked);
  });
  asked.program = version_line();
  asked.words = args;
  return bench::all_reduce(asked);
}

// lockstep bench dp-vs-ddp: compares one process with many devices to many processes.

static int run_bench_dp_vs_ddp(const std::vector<std::string>& given) {
  auto args = given;
  bench::DpVsDdpBench wanted;
  const auto part = take_part(args);
  wanted.words = args;
  Options options("bench dp-vs-ddp",
                  "compares DDP with DataParallel (loss on the first device, or inside forward)",
                  {"lockstep bench dp-vs-ddp", "lockstep bench dp-vs-ddp --devices 4 --out dp.html"});
  options.add("config", wanted.config, "CONFIG.yaml", "the config (default configs/mnist.yaml)");
  options.add("set", wanted.sets, "KEY=VALUE", "override a key of it; repeatable");
  options.add("devices", wanted.devices, "N", "devices, and ranks of DDP (default 2)");
  options.add("steps", wanted.steps, "N", "timed steps per run (default 20)");
  options.add("repeats", wanted.repeats, "N", "runs of each variant, in turn (default 3)");
  options.add("out", wanted.out, "FILE", "also write a page with charts and tables (.html)");
  if (!options.parse(args)) return kDone;
  check_numbers(wanted);
  if (part.empty()) return bench_alone(wanted);
  output::print(bench::dp_vs_ddp_part(part, wanted));
  return kDone;
}

// lockstep bench overlap: what of the gradients' exchange hides behind backward.

static int run_bench_overlap(const std::vector<std::string>& args) {
  bench::OverlapBench asked;
  std::string latency = "200us", bandwidth = "1Gbit";
  asked.command.config = "configs/mnist.yaml";
  Options options("bench overlap", "measures how much of the gradient exchange overlaps with backward",
                  {"mpirun -n 2 lockstep bench overlap",
                   "mpirun -n 2 lockstep bench overlap configs/pima.yaml --latency 1ms --bandwidth 100Mbit",
                   "srun lockstep bench overlap --set data.batch_size=32 --out overlap.html"});
  options.positional("CONFIG.yaml", asked.command.config, "the config (default configs/mnist.yaml)", false);
  options.add("set", asked.command.sets, "KEY=VALUE", "override a key, as in launch.allreduce=tree");
  options.add("latency", latency, "TIME", "simulated network: delay added to each message (default 200us)");
  options.add("bandwidth", bandwidth, "RATE",
              "simulated network: the bandwidth of each rank (default 1Gbit)");
  options.add("steps", asked.steps, "N", "timed steps of each variant; the median is reported (default 8)");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.launcher(asked.command.launcher);
  if (!options.parse(args)) return kDone;
  checked("bench overlap", [&] {
    asked.latency = bench::parse_latency(latency);
    asked.bandwidth = bench::parse_bandwidth(bandwidth);
    check(asked);
  });
  asked.command.program = version_line();
  return bench::overlap(asked);
}

// lockstep bench step: where the time of a training's step goes, and how far it is from the machine's peak.

static int run_bench_step(const std::vector<std::string>& args) {
  bench::StepBench asked;
  int64_t steps = 0;
  Options options("bench step", "shows where a step's time goes, and how close it is to the machine's peak",
                  {"lockstep bench step configs/mnist.yaml",
                   "mpirun -n 2 lockstep bench step configs/mnist.yaml --set train.precision=bf16",
                   "srun lockstep bench step configs/pima.yaml --steps 1000 --json"});
  options.positional("CONFIG.yaml", asked.command.config, "the config file");
  options.add("set", asked.command.sets, "KEY=VALUE", "override a key of it; repeatable");
  options.add("steps", steps, "N", "timed steps (default: as many as fit in 5 seconds, at least 3)");
  options.flag("json", asked.json, "print JSON, for programs: times in seconds, for each rank");
  options.add("out", asked.out, "FILE", "a page with charts and tables (.html)");
  options.launcher(asked.command.launcher);
  if (!options.parse(args)) return kDone;
  if (options.given("steps")) asked.steps = steps;
  checked("bench step", [&] { check(asked); });
  asked.command.program = version_line();
  return bench::step(asked);
}

int run_bench(const std::vector<std::string>& args) {
  static const CommandGroup group = {
      .name = "bench",
      .summary = "measures training steps and all-reduces",
      .kind = "benchmark",
      .kinds = "benchmarks",
      .word = "BENCHMARK",
      .examples = {"lockstep bench step configs/mnist.yaml",
                   "mpirun -n 4 lockstep bench allreduce --algorithm all --out allreduce.html"},
      .members = {
          {"step", "shows where a step's time goes, and how close it is to the machine's peak",
           run_bench_step},
          {"allreduce", "checks and times each all-reduce algorithm against a latency-bandwidth model",
           run_bench_allreduce},
          {"overlap", "measures how much of the gradient exchange overlaps with backward", run_bench_overlap},
          {"dp-vs-ddp", "compares DataParallel (one process, many devices) with DDP (one process per device)",
           run_bench_dp_vs_ddp}}};
  return run_group(group, args);
}

}  // namespace lockstep::cli
