#pragma once
// Bytes to a descriptor, whatever interrupts.

#include <string_view>

namespace lockstep::base {

/// False, with the reason in errno, where the rest cannot be written.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace lockstep::base
