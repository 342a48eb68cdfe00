#pragma once
// Processes of this machine, as their peers see them.
#include <sys/types.h>

namespace lab::nccl {

/// Which numbers of processes mean the same; another container has another one.
unsigned long own_pid_namespace();
/// Ended, or dead and not yet waited for.
bool is_gone(pid_t process);

}  // namespace lab::nccl
