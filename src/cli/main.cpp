#include <malloc.h>

#include <climits>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/version.h"

namespace lockstep::cli {
namespace {

// glibc gives the big activations back to the kernel at every step otherwise: a third of a CNN's step
void keep_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

std::string help() {
  std::string text =
      "lockstep trains with PyTorch's DistributedDataParallel from C++, on one machine or a cluster.\n\n"
      "usage: lockstep [--log LEVEL] COMMAND [arguments]\n\ncommands:\n";
  for (const Command& command : commands()) text += format("  {:<10} {}\n", command.name, command.summary);
  return text +
         "\noptions:\n"
         "  -h, --help     this page; lockstep COMMAND --help for a command\n"
         "  --version      lockstep, libtorch, MPI, NCCL, CUDA, compiler, commit\n"
         "  --log LEVEL    debug, info, warning, error or silent (default info)\n"
         "\nexamples:\n"
         "  lockstep config configs/mnist.yaml --set train.epochs=3\n"
         "  lockstep train configs/mnist.yaml\n"
         "  mpirun -n 2 lockstep train configs/mnist.yaml --set run.name=two_ranks\n"
         "\nexit status: 0 done, 1 failed while running, 2 wrong input, 75 stopped early with a checkpoint\n"
         "LOCKSTEP_TRACE=1 adds a stack trace to an error.\n";
}

const Command& find(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const auto near = nearest(name, names);
  throw InputError(format("unknown {} '{}'", name.starts_with("-") ? "option" : "command", printable(name)),
                   "lockstep",
                   near ? format("did you mean {}? see: lockstep --help", *near) : "see: lockstep --help");
}

int run(std::vector<std::string> args) {
  if (args.size() >= 2 && args[0] == "--log") {
    log::set_level(log::parse_level(args[1]));
    args.erase(args.begin(), args.begin() + 2);
  }
  if (args.empty()) throw InputError("a command is missing", "lockstep", "see: lockstep --help");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help")
    return std::fputs(help().c_str(), stdout), kDone;
  if (args[0] == "--version") return std::fputs(version_text().c_str(), stdout), kDone;
  return find(args[0]).run({args.begin() + 1, args.end()});
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  lockstep::cli::keep_memory();
  std::signal(SIGPIPE, SIG_IGN);  // a peer that is gone must be an error, not our end
  return lockstep::cli::guarded([&] { return lockstep::cli::run({argv + 1, argv + argc}); });
}
