#pragma once
// A file as it might be: a seed with a few bytes changed.

#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

/// One of the seeds, changed in one to eight places; the same for the same random numbers.
std::string mutated(const std::vector<std::string>& seeds, std::mt19937& random);

}  // namespace lockstep::fuzz
