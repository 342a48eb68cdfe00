#pragma once
// What the bits of a sum depend on beside the program: a checkpoint says where it was written.

#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep::train {

/// The processor's name, and the instructions that libtorch uses of it: "AMD EPYC 9555 26 2 1, AVX512", with
/// its numbers.
std::string processor();

/// "libtorch" and "processor": others round otherwise.
void put_machine(const Tree& dict);

/// Of what a file does not tell: nothing is said, or that.
enum class Unrecorded { passes, differs };

/// What of it is another here: "written with libtorch 2.11.0, and this is 2.15.0".
std::vector<std::string> unlike_machine(const Tree& dict, Unrecorded unrecorded = Unrecorded::passes);

}  // namespace lockstep::train
