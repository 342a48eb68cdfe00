#pragma once
// What has become of another process of this node.

namespace lockstep::comm {

enum class ProcessState { running, stopped, gone };

/// A zombie counts as gone: its sockets and memory are.
ProcessState process_state(int pid);

}  // namespace lockstep::comm
