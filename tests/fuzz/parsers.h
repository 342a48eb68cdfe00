#pragma once
// Everything that reads a file of somebody else's.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::fuzz {

struct Parser {
  std::string name;
  std::string file;  ///< what the input is called in the folder that is its own
  std::function<void(const std::filesystem::path& folder, const std::string& input)> read;
  std::function<void(const std::filesystem::path& folder)> write_seed = {};  ///< where no file could be kept
};

const std::vector<Parser>& parsers();

}  // namespace lockstep::fuzz
