// lockstep stop RUN_FOLDER: a checkpoint, and an end for good.
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "trainer/cli/ask_run.h"
#include "trainer/run_folder/lock.h"

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

}  // namespace

int run_stop(const std::vector<std::string>& args) {
  const auto asked = ask_run(
      {.command = "stop",
       .summary = "asks a run to stop with a checkpoint, on any scheduler or none; nothing restarts it",
       .request = run_folder::RunRequest::stop},
      args);
  if (!asked) return kDone;
  wait_for_its_end(asked->folder);
  output::line(run_folder::judge(asked->folder).text);
  return kDone;
}

}  // namespace lockstep::cli
