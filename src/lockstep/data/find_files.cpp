#include "lockstep/data/find_files.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace fs = std::filesystem;

std::string find_data_file(const std::string& root, const std::vector<std::string>& names) {
  const fs::path folder = base::find_path(root);
  std::error_code none;
  for (const char* inside : {"", "MNIST/raw", "raw", "multinli_1.0"}) {  // torchvision's, and the archive's
    for (const auto& name : names) {
      const auto path = folder / inside / name;
      if (fs::exists(path, none)) return path;
    }
  }
  if (!fs::is_directory(folder, none)) {
    throw InputError("the data folder does not exist", folder,
                     "set data.root, or fetch the set: lockstep data fetch");
  }
  throw InputError(format("the data folder holds no {}", base::join(names, " or ")), folder,
                   "set data.root, or fetch the set: lockstep data fetch");
}

}  // namespace lockstep::data
