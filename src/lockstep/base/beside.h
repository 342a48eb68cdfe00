#pragma once
// Where the parts that lockstep loads by itself lie: beside its library or program, as built and as
// installed.

#include <string>
#include <vector>

namespace lockstep::base {

/// The paths at which a file of lockstep's own may lie, likeliest first.
std::vector<std::string> places_beside(const std::string& file);

/// The first of them that is there; empty where none is.
std::string find_beside(const std::string& file);

}  // namespace lockstep::base
