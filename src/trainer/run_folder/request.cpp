#include "trainer/run_folder/request.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
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

namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr std::array<const char*, kRequests.size()> kNames = {"stop.request", "checkpoint.request"};

// Opening a folder is what makes NFS ask its server what is in it.
bool exists_now(const fs::path& path) {
  const base::Descriptor folder(::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder && ::faccessat(folder.number(), path.filename().c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// The number in the file; nothing where there is no request of that name.
std::optional<std::string> attempt_in(const fs::path& file) {
  try {
    const auto text = base::read_small_file(file.string(), 64, "the request");
    return text.substr(0, text.find_first_of(" \t\r\n"));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

fs::path request_file(const fs::path& folder, RunRequest request) {
  return folder / kNames[static_cast<size_t>(request)];
}

void ask(const fs::path& folder, RunRequest request, int64_t attempt) {
  const auto file = request_file(folder, request);
  std::error_code failed;
  if (fs::is_directory(fs::symlink_status(file, failed)))
    throw InputError("the place of the request is a folder, not a file", file.string(), "move it away");
  base::replace_file(file.string(), std::to_string(attempt) + "\n");
}

Requests::Requests(std::function<fs::path()> where, int64_t attempt)
    : where_(std::move(where)), attempt_(attempt) {
  for (const auto request : kRequests) {
    if (meant_for(request) != std::to_string(attempt_)) answer(request);
  }
}

Requests::Requests(fs::path folder, int64_t attempt)
    : Requests([folder = std::move(folder)] { return folder; }, attempt) {}

Requests::Requests(std::shared_ptr<HeldFolder> folder, int64_t attempt)
    : Requests([folder = std::move(folder)] { return folder->path(); }, attempt) {}

bool Requests::asked(RunRequest request) {
  look();
  return asked_[static_cast<size_t>(request)];
}

void Requests::answer(RunRequest request) {
  asked_[static_cast<size_t>(request)] = false;
  try {
    std::error_code none;
    fs::remove(request_file(where_(), request), none);
  } catch (const std::exception&) {  // taken: whoever has it answers there; gone: so is the file
  }
}

void Requests::look() {
  const auto now = Clock::now();
  if (looked_ != Clock::time_point{} && now - looked_ < kLookEvery) return;
  looked_ = now;
  for (const auto request : kRequests) asked_[static_cast<size_t>(request)] = is_there(request);
}

bool Requests::is_there(RunRequest request) const {
  const auto meant = meant_for(request);
  return meant && (meant->empty() || *meant == std::to_string(attempt_));
}

// The attempt that a request names; nothing where there is none, or no folder of ours.
std::optional<std::string> Requests::meant_for(RunRequest request) const {
  try {
    const auto file = request_file(where_(), request);
    return exists_now(file) ? attempt_in(file) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // the folder was taken, or has no successor: the recorder says so
  }
}

}  // namespace lockstep::run_folder
