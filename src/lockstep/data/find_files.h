#pragma once
// Where a set's files lie, and a copy of them on the node's own disk.

#include <string>
#include <vector>

namespace lockstep::data {

/// The first of `names` that exists under `root` or one of the folders where downloaders put it.
std::string find_data_file(const std::string& root, const std::vector<std::string>& names);

/// Copies the file into `folder` unless the same bytes are there; returns the
/// copy's path. The copy is checked, and no half copy ever carries the name. With an empty folder: the path
/// itself.
std::string stage_file(const std::string& path, const std::string& folder);

}  // namespace lockstep::data
