#pragma once
// An exported model as it might be: its graph changed where a graph has parts, in an archive whose sizes and
// checksums are right.

#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

/// One of the seeds, changed in a few places; the same for the same random numbers.
std::string mutated_exported(const std::vector<std::string>& seeds, std::mt19937& random);

}  // namespace lockstep::fuzz
