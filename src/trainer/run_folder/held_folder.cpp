#include "trainer/run_folder/held_folder.h"

#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::run_folder {

FolderTaken::FolderTaken(const std::filesystem::path& folder)
    : Error("another job has taken the run over while this one was stopped or out of touch", folder.string(),
            "leave the run to it: nothing more was written here") {}

FolderRemoved::FolderRemoved(const std::filesystem::path& folder)
    : Error("the run's folder was removed", folder.string(), "what comes is saved beside it") {}

HeldFolder::HeldFolder(RunFolder folder,
                       std::function<RunFolder(const std::filesystem::path& removed)> make_successor)
    : folder_(std::move(folder)), make_successor_(std::move(make_successor)) {}

std::filesystem::path HeldFolder::path() {
  const std::lock_guard lock(mutex_);
  const auto hold = folder_.lock.hold();
  if (hold == Hold::taken) {
    taken_ = true;
    throw FolderTaken(folder_.path);
  }
  if (hold == Hold::gone) {
    auto successor = make_successor_(folder_.path);
    if (!removed_) removed_ = folder_.path;
    log::error(folder_.path.string() + " was removed while the run writes to it: what comes is saved in " +
               successor.path.string());
    folder_ = std::move(successor);
  }
  return folder_.path;
}

void HeldFolder::check(const std::filesystem::path& folder) {
  if (path() != folder) throw FolderRemoved(folder);
}

void HeldFolder::refuse_if_taken() {
  if (!taken_) return;
  const std::lock_guard lock(mutex_);
  throw FolderTaken(folder_.path);
}

std::optional<std::filesystem::path> HeldFolder::removed() {
  const std::lock_guard lock(mutex_);
  return removed_;
}

}  // namespace lockstep::run_folder
