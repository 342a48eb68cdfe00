#pragma once
// Small text files read whole, with a limit and without surprises.

#include <cstddef>
#include <string>

namespace lockstep {

/// The text of a regular file of at most `limit` bytes. A folder, a pipe, a device, a larger file or one that
/// cannot be read is an InputError that calls the file `what`; nothing is waited for.
std::string read_small_file(const std::string& path, size_t limit, const std::string& what);

}  // namespace lockstep
