#include "trainer/cli/ask_run.h"

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "trainer/cli/options.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = 100ms;
constexpr auto kSilent = 10s;  // from a request's end to the status that says why, two heartbeats
constexpr auto kAlive = 2s;    // between two looks at whether its process lives

run_folder::RunStatus status_of_run_that_is_on(const fs::path& folder) {
  auto status = run_folder::read_status(folder);
  if (status.state == run_folder::RunState::running && run_folder::in_use(folder)) return status;
  const bool died = status.state == run_folder::RunState::running;
  throw InputError(
      format("the run is not on: {}", died ? "its process has ended" : run_folder::name_of(status.state)),
      folder.string(), "nobody is there to ask; see: lockstep status " + folder.string());
}

bool is_over(const run_folder::RunStatus& status) {
  return status.state != run_folder::RunState::running;
}

class Waiting {
 public:
  Waiting(fs::path folder, run_folder::RunRequest request, run_folder::RunStatus before, double seconds)
      : folder_(std::move(folder)),
        request_(request),
        before_(std::move(before)),
        seconds_(seconds),
        until_(Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  /// The run's status once the request is done or the run is over.
  run_folder::RunStatus answer() {
    for (;; std::this_thread::sleep_for(kPoll)) {
      const bool gone = is_gone();
      const auto status = run_folder::read_status(folder_);
      if (is_over(status)) return status;
      if (status.attempt != before_.attempt) {
        ask_attempt(status);
      } else if (gone && request_ == run_folder::RunRequest::checkpoint && is_answer(status)) {
        return status;
      }
      refuse_dead();
      if (Clock::now() < until_) continue;
      throw Error(format("not done within {:.0f} s, and still asked for", seconds_), folder_.string(),
                  "a run obeys after its step; see its log, or wait longer with --timeout");
    }
  }

 private:
  bool is_gone() {
    if (fs::exists(run_folder::request_file(folder_, request_))) return gone_since_.reset(), false;
    if (!gone_since_) gone_since_ = Clock::now();
    return true;
  }

  // An attempt that begins removes what the one before it was asked, and says only then who it is. One that
  // obeys renews its status first, unless the disk is full.
  bool is_answer(const run_folder::RunStatus& status) const {
    return status.updated != before_.updated || Clock::now() - *gone_since_ > kSilent;
  }

  // The one that was asked was about to be followed.
  void ask_attempt(const run_folder::RunStatus& status) {
    before_ = status;
    gone_since_.reset();
    run_folder::ask(folder_, request_, status.attempt);
  }

  void refuse_dead() {
    if (Clock::now() - looked_ < kAlive) return;
    looked_ = Clock::now();
    if (run_folder::in_use(folder_) || is_over(run_folder::read_status(folder_))) return;
    std::error_code none;
    fs::remove(run_folder::request_file(folder_, request_), none);
    throw Error("the run ended without a word", folder_.string(), "see: lockstep status " + folder_.string());
  }

  fs::path folder_;
  run_folder::RunRequest request_;
  run_folder::RunStatus before_;
  double seconds_;
  std::optional<Clock::time_point> gone_since_;
  Clock::time_point until_, looked_ = Clock::now();
};

[[noreturn]] void refuse_failed(const fs::path& folder, const run_folder::RunStatus& status) {
  throw Error("the run failed: " + status.reason, folder.string(), "see: lockstep status " + folder.string());
}

void say_asked(const fs::path& folder, run_folder::RunRequest request) {
  output::line("asked, not waited for: " + run_folder::request_file(folder, request).string());
}

}  // namespace

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
  const fs::path folder = named;
  auto before = status_of_run_that_is_on(folder);
  run_folder::ask(folder, asking.request, before.attempt);
  if (no_wait) {
    say_asked(folder, asking.request);
    return std::nullopt;
  }
  auto after = Waiting(folder, asking.request, before, seconds).answer();
  if (after.state == run_folder::RunState::failed) refuse_failed(folder, after);
  return Asked{folder, std::move(before), std::move(after)};
}

}  // namespace lockstep::cli
