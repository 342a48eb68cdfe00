#include "trainer/run_folder/request.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/text.h"

namespace lockstep::run_folder {
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
