#include "trainer/setup/saved.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/nearest_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/parallel/trees/share_tree.h"
#include "lockstep/train/resumable.h"
#include "trainer/run_folder/status.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// What a person wants of a run that kept its best; one that is damaged is skipped, as the newest would
// be.
std::optional<Saved> best_in(const CheckpointStore& store) {
  std::error_code none;
  if (!fs::exists(store.best_path(), none)) return std::nullopt;
  try {
    return Saved{store.best_path(), read_checkpoint(store.best_path())};
  } catch (const InputError& error) {
    log::warning(format("{} is skipped: {}", store.best_path(), error.what()));
    return std::nullopt;
  }
}

std::optional<Saved> newest_in(const CheckpointStore& store) {
  auto found = store.latest();
  if (!found) return std::nullopt;
  check_format(found->tree, found->path);
  return Saved{found->path, found->tree};
}

// Whoever started from the first step in the folder of a run that had come further would end what is left of
// it.
void check_never_saved(const fs::path& run_folder) {
  std::string last;
  try {
    last = run_folder::read_status(run_folder).checkpoint;
  } catch (const InputError&) {
    return;  // killed before it could say anything
  }
  if (last.empty()) return;
  throw InputError("the run's checkpoints are gone", (run_folder / last).string(),
                   "put them back, or start a new run (without --resume)");
}

Saved from_first(const Team& team, const std::function<Saved()>& read) {
  Saved saved;
  saved.tree = parallel::share_tree(team, [&] {
    saved = read();
    return saved.tree;
  });
  saved.path = team.from_first([&] { return saved.path; });
  return saved;
}

}  // namespace

std::string find_saved(const std::string& wanted) {
  auto path = base::find_path(wanted);
  std::error_code failed;
  if (fs::exists(path, failed)) return path;
  throw InputError(
      failed ? "cannot look there: " + failed.message() : "there is no such file or folder", wanted,
      base::did_you_mean_file(wanted) + "name a run's folder (runs/NAME), or a .pt or safetensors file");
}

Saved read_saved(const Team& team, const std::string& wanted) {
  return from_first(team, [&] {
    const auto path = find_saved(wanted);
    if (!fs::is_directory(path)) return Saved{path, read_checkpoint(path)};
    const auto store = checkpoints_of(path);
    if (auto found = best_in(store)) return *found;
    if (auto found = newest_in(store)) return *found;
    throw InputError("there is no whole checkpoint in this folder", path,
                     "name a run's folder (runs/NAME), or a .pt or safetensors file");
  });
}

std::optional<Saved> newest_saved(const Team& team, const std::string& run_folder) {
  auto saved = from_first(team, [&] {
    if (auto found = newest_in(CheckpointStore((fs::path(run_folder) / "checkpoints").string())))
      return *found;
    check_never_saved(run_folder);
    return Saved{"", make_dict()};
  });
  return saved.path.empty() ? std::nullopt : std::optional(std::move(saved));
}

}  // namespace lockstep::train
