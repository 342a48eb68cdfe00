// `lockstep stop` and `lockstep checkpoint`: a request to a run that is on, and what came of it.
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/run_folder/console.h"
#include "lockstep/run_folder/lock.h"
#include "lockstep/run_folder/request.h"
#include "lockstep/run_folder/status.h"
#include "lockstep/train/run.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = 100ms;
constexpr auto kAlive = 2s;   // between two looks at whether its process lives
constexpr auto kLeave = 10s;  // from its last word to its process's end

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
  Waiting(fs::path folder, run_folder::Request request, double seconds)
      : folder_(std::move(folder)),
        request_(request),
        seconds_(seconds),
        until_(Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  /// The run's status once the request is done or the run is over.
  run_folder::RunStatus answer() {
    for (;; std::this_thread::sleep_for(kPoll)) {
      const bool answered = request_ == run_folder::Request::checkpoint &&
                            !fs::exists(run_folder::request_file(folder_, request_));
      const auto status = run_folder::read_status(folder_);
      if (is_over(status) || answered) return status;
      refuse_dead();
      if (Clock::now() < until_) continue;
      throw Error(format("not done within {:.0f} s, and still asked for", seconds_), folder_.string(),
                  "a run obeys after its step; see its log, or wait longer with --timeout");
    }
  }

  /// Until its process is gone too, so that the next attempt finds the folder free.
  void leave() const {
    for (const auto until = Clock::now() + kLeave; run_folder::in_use(folder_) && Clock::now() < until;)
      std::this_thread::sleep_for(kPoll);
  }

 private:
  void refuse_dead() {
    if (Clock::now() - looked_ < kAlive) return;
    looked_ = Clock::now();
    if (run_folder::in_use(folder_) || is_over(run_folder::read_status(folder_))) return;
    std::error_code none;
    fs::remove(run_folder::request_file(folder_, request_), none);
    throw Error("the run ended without a word", folder_.string(), "see: lockstep status " + folder_.string());
  }

  fs::path folder_;
  run_folder::Request request_;
  double seconds_;
  Clock::time_point until_, looked_ = Clock::now();
};

// 470 of "checkpoints/step-00000470.pt".
int64_t step_of(const std::string& checkpoint) {
  const auto digits = checkpoint.find_first_of("0123456789");
  return digits == std::string::npos ? -1 : std::atoll(checkpoint.c_str() + digits);
}

[[noreturn]] void refuse_failed(const fs::path& folder, const run_folder::RunStatus& status) {
  throw Error("the run failed: " + status.reason, folder.string(), "see: lockstep status " + folder.string());
}

void say_asked(const fs::path& folder, run_folder::Request request) {
  run_folder::Console(true).line("asked, not waited for: " +
                                 run_folder::request_file(folder, request).string());
}

}  // namespace

int stop(const std::string& given, const AskOptions& options) {
  const fs::path folder = given;
  const auto before = status_of_run_that_is_on(folder);
  run_folder::ask(folder, run_folder::Request::stop, before.attempt);
  if (!options.wait) return say_asked(folder, run_folder::Request::stop), kDone;
  Waiting waiting(folder, run_folder::Request::stop, options.seconds);
  const auto after = waiting.answer();
  if (after.state == run_folder::RunState::failed) refuse_failed(folder, after);
  waiting.leave();
  run_folder::Console(true).line(run_folder::judge(folder).text);
  return kDone;
}

int checkpoint(const std::string& given, const AskOptions& options) {
  const fs::path folder = given;
  const auto before = status_of_run_that_is_on(folder);
  run_folder::ask(folder, run_folder::Request::checkpoint, before.attempt);
  if (!options.wait) return say_asked(folder, run_folder::Request::checkpoint), kDone;
  const auto after = Waiting(folder, run_folder::Request::checkpoint, options.seconds).answer();
  if (after.state == run_folder::RunState::failed) refuse_failed(folder, after);
  if (step_of(after.checkpoint) < before.step) {
    throw Error("the checkpoint could not be written", folder.string(), "the run's log says why; it goes on");
  }
  run_folder::Console(true).line(
      format("{}: checkpoint {}", run_folder::name_of(after.state), (folder / after.checkpoint).string()));
  return kDone;
}

}  // namespace lockstep::train
