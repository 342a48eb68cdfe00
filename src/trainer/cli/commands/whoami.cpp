// lockstep whoami: shows rank, world size, node and device of every process, and why.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "tools/whoami/ask.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_whoami(const std::vector<std::string>& args) {
  constexpr std::chrono::seconds kLeave{60};
  bool json = false;
  std::string launcher = "auto", device = "auto";
  Options options("whoami", "shows rank, world size, node and device of every process, and why",
                  {"lockstep whoami", "mpirun -n 4 lockstep whoami", "srun lockstep whoami --json"});
  options.flag("json", json, "print JSON, for programs; the schema is in docs/reference/launchers.md");
  options.launcher(launcher);
  options.add("device", device, "NAME", "auto, cpu or cuda (default auto)");
  if (!options.parse(args)) return kDone;

  launch::Runtime runtime(launcher, {.leave_timeout = kLeave});
  const auto answers = whoami::ask_all(runtime, device);
  if (answers.report)
    output::print(json ? whoami::as_json(*answers.report) : whoami::as_text(*answers.report));
  whoami::refuse_missing(runtime, answers);
  return kDone;
}

}  // namespace lockstep::cli
