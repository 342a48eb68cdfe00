#include "trainer/run_folder/await_answer.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = 100ms;
constexpr auto kSilent = 10s;  // from a request's end to the status that says why, two heartbeats
constexpr auto kAlive = 2s;    // between two looks at whether its process lives

bool is_over(const RunStatus& status) {
  return status.state != RunState::running;
}

class Waiting {
 public:
  Waiting(fs::path folder, RunRequest request, RunStatus before, double seconds)
      : folder_(std::move(folder)),
        request_(request),
        before_(std::move(before)),
        seconds_(seconds),
        until_(Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  /// The run's status once the request is done or the run is over.
  RunStatus answer() {
    for (;; std::this_thread::sleep_for(kPoll)) {
      const bool gone = is_gone();
      const auto status = read_status(folder_);
      if (is_over(status)) return status;
      if (status.attempt != before_.attempt) {
        ask_attempt(status);
      } else if (gone && request_ == RunRequest::checkpoint && is_answer(status)) {
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
    if (fs::exists(request_file(folder_, request_))) return gone_since_.reset(), false;
    if (!gone_since_) gone_since_ = Clock::now();
    return true;
  }

  // An attempt that begins removes what the one before it was asked, and says only then who it is. One that
  // obeys renews its status first, unless the disk is full.
  bool is_answer(const RunStatus& status) const {
    return status.updated != before_.updated || Clock::now() - *gone_since_ > kSilent;
  }

  // The one that was asked was about to be followed.
  void ask_attempt(const RunStatus& status) {
    before_ = status;
    gone_since_.reset();
    run_folder::ask(folder_, request_, status.attempt);
  }

  void refuse_dead() {
    if (Clock::now() - looked_ < kAlive) return;
    looked_ = Clock::now();
    if (in_use(folder_) || is_over(read_status(folder_))) return;
    std::error_code none;
    fs::remove(request_file(folder_, request_), none);
    throw Error("the run ended without a word", folder_.string(), "see: lockstep status " + folder_.string());
  }

  fs::path folder_;
  RunRequest request_;
  RunStatus before_;
  double seconds_;
  std::optional<Clock::time_point> gone_since_;
  Clock::time_point until_, looked_ = Clock::now();
};

}  // namespace

RunStatus status_of_running(const fs::path& folder) {
  auto status = read_status(folder);
  if (status.state == RunState::running && in_use(folder)) return status;
  const bool died = status.state == RunState::running;
  throw InputError(format("the run is not on: {}", died ? "its process has ended" : name_of(status.state)),
                   folder.string(), "nobody is there to ask; see: lockstep status " + folder.string());
}

RunStatus await_answer(const fs::path& folder, RunRequest request, const RunStatus& before, double seconds) {
  auto after = Waiting(folder, request, before, seconds).answer();
  if (after.state != RunState::failed) return after;
  throw Error("the run failed: " + after.reason, folder.string(), "see: lockstep status " + folder.string());
}

}  // namespace lockstep::run_folder
