#include "lockstep/base/files/temporary_folder.h"

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::base {

TemporaryFolder::TemporaryFolder() {
  std::error_code failed;
  path_ = std::filesystem::temp_directory_path(failed) / "lockstep-XXXXXX";
  if (failed || !::mkdtemp(path_.data()))
    throw Error("no temporary folder can be made", path_,
                "free disk space there, or set TMPDIR to a folder of yours");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

}  // namespace lockstep::base
