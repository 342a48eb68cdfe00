#pragma once
// Text files read whole.

#include <cstddef>
#include <string>

namespace lockstep {

/// The text of a regular file of at most `limit` bytes. A folder, a pipe, a device, a larger file or one that
/// cannot be read is an InputError that calls the file `what`; nothing is waited for.
std::string read_small_file(const std::string& path, size_t limit, const std::string& what);

/// The whole of a file that this program wrote itself; InputError where it cannot be read.
std::string read_text(const std::string& path);

}  // namespace lockstep
