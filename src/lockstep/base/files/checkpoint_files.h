#pragma once
// Names of checkpoints, like step-00000470.pt, and the newest in a folder.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep::base {

/// "step-00000470.pt"
std::string checkpoint_name(int64_t step);

/// 470 for "step-00000470.pt"; nullopt for another name.
std::optional<int64_t> step_in_name(const std::string& name);

/// The checkpoints of a folder, unsorted; empty if the folder does not exist. InputError if unreadable.
std::vector<std::filesystem::path> checkpoints_in(const std::string& folder);

/// The same, with the reason in `failure` instead of an InputError.
std::vector<std::filesystem::path> checkpoints_in(const std::string& folder, std::error_code& failure);

/// The path with the highest step, or empty; the file is not opened.
std::string newest_by_name(const std::string& folder);

}  // namespace lockstep::base
