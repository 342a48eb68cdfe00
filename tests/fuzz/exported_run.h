#pragma once
// A model that somebody exported, read and run.

#include <string>

namespace lockstep::fuzz {

/// Reads the file here and runs it, forward and backward, in training and in evaluation, in a process of its
/// own. An Error where it is refused or its run ends by an exception.
void run_exported(const std::string& path);

}  // namespace lockstep::fuzz
