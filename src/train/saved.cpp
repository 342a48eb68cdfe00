#include "train/saved.h"

#include <filesystem>

#include "base/error.h"
#include "base/paths.h"
#include "checkpoint/pt.h"
#include "checkpoint/store.h"
#include "train/share_tree.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

Saved newest_in(const fs::path& folder) {
  const auto inside = folder / "checkpoints";
  auto found = CheckpointStore(fs::is_directory(inside) ? inside : folder).latest();
  if (!found) {
    throw InputError("there is no whole checkpoint in this folder", folder,
                     "name a run's folder (runs/NAME), or a .pt or safetensors file");
  }
  return {found->path, found->tree};
}

}  // namespace

Saved read_saved(const Team& team, const std::string& wanted) {
  const auto path = find_path(wanted);
  Saved saved;
  saved.tree = share_tree(team, [&] {
    auto read = fs::is_directory(path) ? newest_in(path) : Saved{path, read_checkpoint_file(path)};
    saved.path = read.path;
    return read.tree;
  });
  saved.path = team.from_first([&] { return saved.path; });
  return saved;
}

}  // namespace lockstep::train
