#include "train/saved.h"

#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/paths.h"
#include "checkpoint/pt.h"
#include "checkpoint/store.h"
#include "train/share_tree.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

void check_format(const Saved& saved) {
  const auto extras = find(saved.tree, "lockstep");
  if (!extras) return;  // Python's, or safetensors
  const auto number = as_int(get(*extras, "format"), "lockstep.format");
  if (number <= kCheckpointFormat) return;
  throw InputError(
      format("the checkpoint is of format {}, this lockstep reads up to {}", number, kCheckpointFormat),
      saved.path, "use the lockstep that wrote it, or a newer one");
}

Saved read_file(const std::string& path) {
  auto file = open_checkpoint_file(path);
  if (file.checksum == Checksum::none)
    log::info(format("{} has no checksum: a flipped bit would not be seen", path));
  return {path, std::move(file.tree)};
}

std::optional<Saved> newest_in(const fs::path& folder) {
  const auto inside = folder / "checkpoints";
  auto found = CheckpointStore(fs::is_directory(inside) ? inside : folder).latest();
  if (!found) return std::nullopt;
  return Saved{found->path, found->tree};
}

Saved from_first(const Team& team, const std::function<Saved()>& read) {
  Saved saved;
  saved.tree = share_tree(team, [&] {
    saved = read();
    check_format(saved);
    return saved.tree;
  });
  saved.path = team.from_first([&] { return saved.path; });
  return saved;
}

}  // namespace

std::string find_saved(const std::string& wanted) {
  auto path = find_path(wanted);
  std::error_code failed;
  if (fs::exists(path, failed)) return path;
  throw InputError(failed ? "cannot look there: " + failed.message() : "there is no such file or folder",
                   wanted, "name a run's folder (runs/NAME), or a .pt or safetensors file");
}

Saved read_saved(const Team& team, const std::string& wanted) {
  return from_first(team, [&] {
    const auto path = find_saved(wanted);
    if (!fs::is_directory(path)) return read_file(path);
    if (auto found = newest_in(path)) return *found;
    throw InputError("there is no whole checkpoint in this folder", path,
                     "name a run's folder (runs/NAME), or a .pt or safetensors file");
  });
}

std::optional<Saved> newest_saved(const Team& team, const std::string& run_folder) {
  auto saved = from_first(team, [&] { return newest_in(run_folder).value_or(Saved{"", make_dict()}); });
  return saved.path.empty() ? std::nullopt : std::optional(std::move(saved));
}

}  // namespace lockstep::train
