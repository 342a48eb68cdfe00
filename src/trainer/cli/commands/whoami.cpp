// lockstep whoami: shows rank, world size, node and device of every process, and why.
#include "lockstep/base/error.h"
#include "tools/whoami/ask.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_whoami(const std::vector<std::string>& args) {
  bool json = false;
  std::string launcher = "auto", device = "auto";
  Options options("whoami", "shows rank, world size, node and device of every process, and why",
                  {"lockstep whoami", "mpirun -n 4 lockstep whoami", "srun lockstep whoami --json"});
  options.flag("json", json, "print JSON, for programs; the schema is in docs/reference/launchers.md");
  options.launcher(launcher);
  options.add("device", device, "NAME", "auto, cpu or cuda (default auto)");
  if (!options.parse(args)) return kDone;
  whoami::run(launcher, device, json);
  return kDone;
}

}  // namespace lockstep::cli
