#pragma once
// "Did you mean" for a file or folder that is not there.

#include <string>

namespace lockstep::base {

/// "configs/mnist.yaml" for "configs/mnits.yaml", "config/mnist.yaml" or "configs/mnist": what lies near it,
/// where find_path() looks. Empty where nothing does, or something of that name is there.
std::string nearest_file(const std::string& path);

/// "did you mean configs/mnist.yaml? ", or "".
std::string did_you_mean_file(const std::string& path);

}  // namespace lockstep::base
