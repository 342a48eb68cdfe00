// lockstep checkpoint RUN_FOLDER: has a run write a checkpoint now, and go on.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "trainer/cli/ask_run.h"

namespace lockstep::cli {
namespace {

// 470 of "checkpoints/step-00000470.pt".
int64_t step_of(const std::string& checkpoint) {
  const auto digits = checkpoint.find_first_of("0123456789");
  return digits == std::string::npos ? -1 : std::atoll(checkpoint.c_str() + digits);
}

}  // namespace

int run_checkpoint(const std::vector<std::string>& args) {
  const auto asked = ask_run({.command = "checkpoint",
                              .summary = "asks a run for a checkpoint now; it goes on",
                              .request = run_folder::RunRequest::checkpoint},
                             args);
  if (!asked) return kDone;
  const auto& [folder, before, after] = *asked;
  // what was known before may be seconds old: the run itself says when it could not
  if (!after.unsaved.empty() || step_of(after.checkpoint) < before.step) {
    throw Error("the checkpoint could not be written" + (after.unsaved.empty() ? "" : ": " + after.unsaved),
                folder.string(), "the run's log says why; it goes on");
  }
  output::line(
      format("{}: checkpoint {}", run_folder::name_of(after.state), (folder / after.checkpoint).string()));
  return kDone;
}

}  // namespace lockstep::cli
