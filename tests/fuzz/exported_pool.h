#pragma once
// Calls of listed operators, each alone, on tensors of many shapes and dtypes: a thousand in the time of one
// model.

#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

/// A JSON list of nodes, each run forward and backward in one process of its own. An Error where none of them
/// runs.
void run_calls(const std::string& nodes);

/// Such a list; the seeds do not matter.
std::string some_calls(const std::vector<std::string>& seeds, std::mt19937& random);

/// One that runs, as a file in the folder.
void write_calls(const std::filesystem::path& file);

}  // namespace lockstep::fuzz
