#pragma once
// Folders that a learner's program has closed (chmod 000) are opened again: they are the learner's.

#include <string>

namespace lockstep::workshop {

/// Gives the owner all rights to a folder that is there; a link is left as it is.
void open_folder(const std::string& folder);

/// An empty folder of that name, whatever was there.
void make_empty(const std::string& folder);

}  // namespace lockstep::workshop
