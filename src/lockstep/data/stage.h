#pragma once
// Copies of a data set on a node-local folder: each whole or not at all, one a node.

#include <string>

namespace lockstep::data {

/// Copies the file into `folder` unless the same bytes are there; returns the copy's path. The copy is
/// checked, and no half copy ever carries the name. With an empty folder: the path itself.
std::string stage_file(const std::string& path, const std::string& folder);

}  // namespace lockstep::data
