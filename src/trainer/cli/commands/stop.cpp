// lockstep stop, lockstep checkpoint: requests to a run, answered with a checkpoint.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"
#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kProcessEnd = 10s;  // from the run's last word to its process's end

// So that the next attempt finds the folder free.
void wait_for_its_end(const std::filesystem::path& folder) {
  const auto until = Clock::now() + kProcessEnd;
  while (run_folder::in_use(folder) && Clock::now() < until) std::this_thread::sleep_for(100ms);
}

// 470 of "checkpoints/step-00000470.pt".
int64_t step_of(const std::string& checkpoint) {
  const auto digits = checkpoint.find_first_of("0123456789");
  return digits == std::string::npos ? -1 : std::atoll(checkpoint.c_str() + digits);
}

struct Asked {
  std::filesystem::path folder;
  run_folder::RunStatus before, after;
};

// Asks the run that the arguments name, and waits until it has obeyed or has ended. Nothing where there is
// nothing to wait for: with --help and --no-wait.
std::optional<Asked> ask_run(const std::string& command, const std::string& summary,
                             run_folder::RunRequest request, const std::vector<std::string>& args) {
  std::string named;
  double seconds = 600;
  bool no_wait = false;
  const auto example = "lockstep " + command + " runs/mnist";
  Options options(command, summary, {example, example + " --no-wait"});
  options.positional("RUN_FOLDER", named, "the run's folder");
  options.add("timeout", seconds, "SECONDS", "how long to wait (default 600)");
  options.flag("no-wait", no_wait, "do not wait");
  if (!options.parse(args)) return std::nullopt;
  const std::filesystem::path folder = named;
  auto before = run_folder::status_of_running(folder);
  run_folder::ask(folder, request);
  if (no_wait) {
    const auto file = run_folder::request_file(folder, request);
    output::line("requested, without waiting: " + file.string());
    return std::nullopt;
  }
  auto after = run_folder::await_answer(folder, request, before, seconds);
  return Asked{folder, std::move(before), std::move(after)};
}

}  // namespace

int run_stop(const std::vector<std::string>& args) {
  const auto asked = ask_run(
      "stop", "stops a run with a checkpoint, with any scheduler or none; its job does not restart it",
      run_folder::RunRequest::stop, args);
  if (!asked) return kDone;
  wait_for_its_end(asked->folder);
  output::line(run_folder::job_status(asked->folder).text);
  return kDone;
}

int run_checkpoint(const std::vector<std::string>& args) {
  const auto asked = ask_run("checkpoint", "asks a run for a checkpoint now; the run continues",
                             run_folder::RunRequest::checkpoint, args);
  if (!asked) return kDone;
  const auto& [folder, before, after] = *asked;
  // what was known before may be seconds old: the run itself says when it could not
  if (!after.unsaved.empty() || step_of(after.checkpoint) < before.step)
    throw Error("the checkpoint could not be written" + (after.unsaved.empty() ? "" : ": " + after.unsaved),
                folder.string(), "see the run's log; the run continues");
  output::line(
      format("{}: checkpoint {}", run_folder::name_of(after.state), (folder / after.checkpoint).string()));
  return kDone;
}

}  // namespace lockstep::cli
