#pragma once
// What vouches for a checkpoint file's bytes.

namespace lockstep::checkpoint {

/// With none, a flipped bit is not seen.
enum class Checksum { none, each_record, whole_file };

}  // namespace lockstep::checkpoint
