// lockstep bench: what is measured, by name.
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"

// To add a bench NAME: write `int run_bench_NAME(const std::vector<std::string>& args)` (namespace
// lockstep::cli) in cli/commands/bench_NAME.cpp, and add ONE line here: function, name, summary.
#define LOCKSTEP_BENCHES(X)                                                                         \
  X(step, "step", "where a step's time goes, and how far it is from the machine's peak")            \
  X(allreduce, "allreduce", "every way to sum over the ranks: right, how fast, and its formula")    \
  X(overlap, "overlap", "what of the gradients' exchange hides behind backward, and what does not") \
  X(dp_vs_ddp, "dp-vs-ddp", "one process with many devices against many processes")

namespace lockstep::cli {
namespace {

struct Row {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

}  // namespace

#define LOCKSTEP_DECLARE_BENCH(function, name, summary) \
  int run_bench_##function(const std::vector<std::string>& args);
LOCKSTEP_BENCHES(LOCKSTEP_DECLARE_BENCH)

namespace {

const std::vector<Row>& benches() {
#define LOCKSTEP_BENCH_ROW(function, name, summary) {name, summary, run_bench_##function},
  static const std::vector<Row> table = {LOCKSTEP_BENCHES(LOCKSTEP_BENCH_ROW)};
  return table;
}

int print_help() {
  std::string text =
      "lockstep bench: measures what a page of the docs explains, on this machine\n\n"
      "usage: lockstep bench NAME [arguments]\n\nbenches:\n";
  for (const auto& bench : benches()) text += format("  {:<10} {}\n", bench.name, bench.summary);
  text +=
      "\noptions:\n  -h, --help     this page; lockstep bench NAME --help for a bench\n"
      "\nexamples:\n  lockstep bench step configs/mnist.yaml\n  mpirun -n 4 lockstep bench allreduce "
      "--algorithm all --out allreduce.html\n";
  std::fputs(text.c_str(), stdout);
  return kDone;
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& bench : benches()) names.emplace_back(bench.name);
  const auto near = base::nearest(name, names);
  throw UsageError(format("unknown bench '{}'", base::printable(name)), "lockstep bench",
                   near ? format("did you mean {}?", *near) : "choose " + base::join(names, ", "));
}

}  // namespace

int run_bench(const std::vector<std::string>& args) {
  if (args.empty()) throw UsageError("the bench is missing", "lockstep bench", "see: lockstep bench --help");
  if (args[0] == "--help" || args[0] == "-h") return print_help();
  for (const auto& bench : benches()) {
    if (args[0] == bench.name) return bench.run({args.begin() + 1, args.end()});
  }
  refuse(args[0]);
}

}  // namespace lockstep::cli
