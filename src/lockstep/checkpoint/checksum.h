#pragma once
// What vouches for a checkpoint file's bytes.

namespace lockstep {

/// With none, a flipped bit is not seen.
enum class Checksum { none, each_record, whole_file };

}  // namespace lockstep
