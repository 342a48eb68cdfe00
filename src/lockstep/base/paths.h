#pragma once
// Where lockstep looks for files: under the working directory, then under LOCKSTEP_HOME.

#include <string>
#include <vector>

namespace lockstep::base {

/// The folder that holds configs, job scripts and data: LOCKSTEP_HOME where it is set, else the
/// share folder or the source tree that this library was installed in or built from; empty where there is
/// none.
std::string home_folder();

/// The path itself where it exists or is absolute, else the same path under home_folder() where that exists,
/// else the path unchanged. Empty stays empty.
std::string find_path(const std::string& path);

/// The paths where a library that lockstep loads may be, likeliest first: beside lockstep's own library or
/// program, as built and as installed.
std::vector<std::string> places_beside(const std::string& file);

/// The first of them that exists, or empty.
std::string find_beside(const std::string& file);

}  // namespace lockstep::base
