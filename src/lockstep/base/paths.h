#pragma once
// Where files are looked for: under the working directory, then under LOCKSTEP_HOME.

#include <string>

namespace lockstep::base {

/// The folder that holds configs, job scripts and data: LOCKSTEP_HOME where it is set, else the
/// share folder or the source tree that this library was installed in or built from; empty where there is
/// none.
std::string home_folder();

/// The path itself where it exists or is absolute, else the same path under home_folder() where that exists,
/// else the path unchanged. Empty stays empty.
std::string find_path(const std::string& path);

}  // namespace lockstep::base
