#pragma once
// The ranks of a group as processes, and how messages name them.

#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/files/file.h"

namespace lockstep::comm {

struct Peer {
  int rank = 0;
  int node = 0;  // index of its node
  int pid = ::getpid();
  std::uint64_t pid_space = base::own_namespace("pid");  // the pid is valid only inside it
  std::string host = {};
  std::string address = {};  // as other nodes reach it; empty on a single node
  int in_job = -1;           // its rank in the job, if the group is a part of the job

  int rank_in_job() const { return in_job < 0 ? rank : in_job; }
};

/// "rank 2 (host a, pid 4711)"
std::string name_of(const Peer& peer);
/// "rank 2 (...) and rank 3 (...)"; names eight ranks and counts the rest.
std::string names_of(const std::vector<Peer>& peers);

enum class ProcessState { running, stopped, gone };
/// A zombie counts as gone: its sockets and memory are closed.
ProcessState process_state(int pid);

}  // namespace lockstep::comm
