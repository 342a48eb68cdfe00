#pragma once
// Whose process is at the other end of a connection inside this machine: the kernel says, so nobody can
// pretend.

#include <sys/types.h>

#include <optional>

namespace lockstep::comm {

/// The user id there; nothing where the other end is on another machine, has gone, or the kernel does not
/// say. Of a connection that the other end has not accepted yet it is 0.
std::optional<uid_t> user_at_other_end(int socket);

}  // namespace lockstep::comm
