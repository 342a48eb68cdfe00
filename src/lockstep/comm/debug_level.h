#pragma once
// c10d's own checks, which TORCH_DISTRIBUTED_DEBUG asks for.

namespace lockstep::comm {

/// c10d's own checks as TORCH_DISTRIBUTED_DEBUG asks for them; InputError where it asks for nothing known.
void read_debug_level();

}  // namespace lockstep::comm
