#include "trainer/cli/ask_run.h"

#include "lockstep/base/files/output.h"
#include "trainer/cli/options.h"
#include "trainer/run_folder/await_answer.h"

namespace lockstep::cli {

std::optional<Asked> ask_run(const Asking& asking, const std::vector<std::string>& args) {
  std::string named;
  double seconds = 600;
  bool no_wait = false;
  const auto example = "lockstep " + asking.command + " runs/mnist";
  Options options(asking.command, asking.summary, {example, example + " --no-wait"});
  options.positional("RUN_FOLDER", named, "the run's folder");
  options.add("timeout", seconds, "SECONDS", "how long to wait until it is done (default 600)");
  options.flag("no-wait", no_wait, "ask and leave");
  if (!options.parse(args)) return std::nullopt;
  const std::filesystem::path folder = named;
  auto before = run_folder::status_of_running(folder);
  run_folder::ask(folder, asking.request, before.attempt);
  if (no_wait) {
    const auto file = run_folder::request_file(folder, asking.request);
    output::line("asked, not waited for: " + file.string());
    return std::nullopt;
  }
  auto after = run_folder::await_answer(folder, asking.request, before, seconds);
  return Asked{folder, std::move(before), std::move(after)};
}

}  // namespace lockstep::cli
