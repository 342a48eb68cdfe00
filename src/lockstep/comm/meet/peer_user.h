#pragma once
// Whose process is at the other end of a connection inside this machine: the kernel says, so nobody can
// pretend.

#include <sys/types.h>

#include <optional>

namespace lockstep::comm {

/// The user id there; nothing where the other end is on another machine, has gone, has not accepted yet, or
/// where the kernel does not say.
std::optional<uid_t> user_at_other_end(int socket);

/// Are both ends on this machine?
bool stays_on_this_machine(int socket);

}  // namespace lockstep::comm
