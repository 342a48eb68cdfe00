#pragma once
// Copies of a data set on a node-local folder: each whole or not at all, one a node.

#include <string>

namespace lockstep::data {

/// Copies the file into `folder` unless a complete copy of this user's is there; returns the copy's path. Its
/// name holds a digest of the file and one of the content, so jobs with files of one name never share a copy.
/// With an empty folder, or for a file that is in it: the path itself.
std::string stage_file(const std::string& path, const std::string& folder);

/// Is it a regular file of this user's, and no link?
bool is_own_file(const std::string& path);

}  // namespace lockstep::data
