#pragma once
// What `lockstep stop` and `lockstep checkpoint` share: their options, the request, and the wait for its
// answer.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/run_folder/request.h"
#include "trainer/run_folder/status.h"

namespace lockstep::cli {

struct Asking {
  std::string command, summary;
  run_folder::RunRequest request;
};

struct Asked {
  std::filesystem::path folder;
  run_folder::RunStatus before, after;
};

/// Asks the run that the arguments name, and waits until it has obeyed or is over. Nothing where there is
/// none to wait for: with --help and --no-wait. Throws where the run is not on, has failed, or takes too
/// long.
std::optional<Asked> ask_run(const Asking& asking, const std::vector<std::string>& args);

}  // namespace lockstep::cli
