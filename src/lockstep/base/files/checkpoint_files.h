#pragma once
// How the checkpoints of a run are named, step-00000470.pt and so on, and which of a folder is the newest by
// its name.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep::base {

/// "step-00000470.pt"
std::string checkpoint_name(int64_t step);

/// 470 of "step-00000470.pt"; nothing where it is no checkpoint's name.
std::optional<int64_t> step_in_name(const std::string& name);

/// The checkpoints of a folder, in no order; none where there is no folder. An InputError where the system
/// cannot read it.
std::vector<std::filesystem::path> checkpoints_in(const std::string& folder);

/// The same, and what stood in the way; a folder that is not there is an empty one.
std::vector<std::filesystem::path> checkpoints_in(const std::string& folder, std::error_code& failure);

/// The one that is newest by its name, unread; empty where there is none.
std::string newest_by_name(const std::string& folder);

}  // namespace lockstep::base
