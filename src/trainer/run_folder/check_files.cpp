#include "trainer/run_folder/check_files.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "move it away, or start a new run (without --resume)";

struct RunFile {
  const char *name, *what;
};
constexpr std::array<RunFile, 6> kFiles = {{{"config.yaml", "the run's config"},
                                            {"lock", "the run's lock"},
                                            {"status.json", "the run's status"},
                                            {"metrics.jsonl", "the run's metrics"},
                                            {"metrics.jsonl.cut", "the file of lines that were cut off"},
                                            {"checkpoints/best.pt", "the best checkpoint"}}};

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::symlink_status(path, failed).type() != fs::file_type::not_found;
}

void check_files(const fs::path& folder) {
  const auto checkpoints = folder / "checkpoints";
  std::error_code failed;
  if (is_there(checkpoints) && !fs::is_directory(checkpoints, failed))
    throw InputError("the place of the run's checkpoints is no folder", checkpoints.string(), kHint);
  for (const auto& [name, what] : kFiles) {
    if (is_there(folder / name)) base::RegularFile((folder / name).string(), what, kHint);
  }
}

}  // namespace lockstep::run_folder
