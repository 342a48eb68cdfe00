#pragma once
// Where a set's files lie.

#include <string>
#include <vector>

namespace lockstep::data {

/// The first of `names` that exists under `root` or one of the folders where downloaders put it.
std::string find_data_file(const std::string& root, const std::vector<std::string>& names);

}  // namespace lockstep::data
