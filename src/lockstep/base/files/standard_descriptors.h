#pragma once
// Descriptors 0 to 2 are always open.

namespace lockstep::base {

/// Opens /dev/null where standard input, output or error came closed: the next file to be opened would take
/// their number, and be written into by whoever prints. To be called first thing in main.
void open_standard_descriptors();

}  // namespace lockstep::base
