#include "trainer/run_folder/request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLookEvery = 1s;
constexpr auto kPoll = 100ms;
constexpr auto kSilent = 10s;  // from a request's end to the status that says why, two heartbeats
constexpr auto kAlive = 2s;    // between two looks at whether the run's process lives
constexpr std::array<const char*, kRequests.size()> kNames = {"stop.request", "checkpoint.request"};

// Opening a folder makes NFS ask its server what is in it.
bool is_asked(const fs::path& file) {
  const base::Descriptor folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat facts {};
  return folder && ::fstatat(folder.number(), file.filename().c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(facts.st_mode);
}

void refuse_dead(const fs::path& folder, RunRequest request) {
  if (in_use(folder) || read_status(folder).state != RunState::running) return;
  std::error_code none;
  fs::remove(request_file(folder, request), none);
  throw Error("the run exited without reporting a status", folder.string(),
              "see: lockstep status " + folder.string());
}

// The run's status once the request is done or the run is over.
RunStatus answer_of(const fs::path& folder, RunRequest request, RunStatus before, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool answered = false;  // the file is gone, since `when`
  Clock::time_point when{};
  for (auto looked = Clock::now();; std::this_thread::sleep_for(kPoll)) {
    const bool before_that = std::exchange(answered, !fs::exists(request_file(folder, request)));
    if (answered && !before_that) when = Clock::now();
    const auto status = read_status(folder);
    if (status.state != RunState::running) return status;
    if (status.attempt != before.attempt) {  // which removes what an earlier attempt was asked: ask it again
      before = status;
      answered = false;
      ask(folder, request);
    } else if (request == RunRequest::checkpoint && answered &&
               (status.updated != before.updated || Clock::now() - when > kSilent)) {
      return status;  // a run renews its status first, unless the disk is full
    }
    if (Clock::now() - looked >= kAlive) {
      looked = Clock::now();
      refuse_dead(folder, request);
    }
    if (Clock::now() >= until)
      throw Error(format("not done within {:.0f} s; the request is still pending", seconds), folder.string(),
                  "wait longer with --timeout, or look in the run's log: it answers after its current step");
  }
}

}  // namespace

fs::path request_file(const fs::path& folder, RunRequest request) {
  return folder / kNames[static_cast<size_t>(request)];
}

void ask(const fs::path& folder, RunRequest request) {
  const auto file = request_file(folder, request);
  std::error_code failed;
  if (fs::is_directory(fs::symlink_status(file, failed)))
    throw InputError("a folder has the name of the request file", file.string(), "move it away");
  base::replace_file(file.string(), "");
}

Requests::Requests(fs::path folder) : folder_(std::move(folder)) {
  for (const auto request : kRequests) answer(request);
}

bool Requests::asked(RunRequest request) {
  const auto now = Clock::now();
  if (looked_ == Clock::time_point{} || now - looked_ >= kLookEvery) {
    looked_ = now;
    for (const auto each : kRequests)
      asked_[static_cast<size_t>(each)] = is_asked(request_file(folder_, each));
  }
  return asked_[static_cast<size_t>(request)];
}

void Requests::answer(RunRequest request) {
  asked_[static_cast<size_t>(request)] = false;
  std::error_code none;
  fs::remove(request_file(folder_, request), none);
}

RunStatus status_of_running(const fs::path& folder) {
  auto status = read_status(folder);
  if (status.state == RunState::running && in_use(folder)) return status;
  const bool died = status.state == RunState::running;
  throw InputError(
      format("the run is not running: {}", died ? "its process has ended" : name_of(status.state)),
      folder.string(), "see: lockstep status " + folder.string());
}

RunStatus await_answer(const fs::path& folder, RunRequest request, const RunStatus& before, double seconds) {
  auto after = answer_of(folder, request, before, seconds);
  if (after.state != RunState::failed) return after;
  throw Error("the run failed: " + after.reason, folder.string(), "see: lockstep status " + folder.string());
}

}  // namespace lockstep::run_folder
