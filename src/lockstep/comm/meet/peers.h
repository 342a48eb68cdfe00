#pragma once
// The ranks of a group, and how messages name them.

#include <string>
#include <vector>

namespace lockstep::comm {

struct Peer {
  int rank = 0;
  int node = 0;  // index of its node
  int pid = 0;
  unsigned long pid_space = 0;  // PID namespace: a pid is valid only inside it
  std::string host;
  std::string address;  // as other nodes reach it; empty on a single node
  int in_job = -1;      // its rank in the job, if the group is a part of the job

  int rank_in_job() const { return in_job < 0 ? rank : in_job; }
};

/// This process as rank `rank` of a job.
Peer own_peer(int rank, int node, const std::string& host, const std::string& address);

/// "rank 2 (host a, pid 4711)"
std::string name_of(const Peer& peer);
/// "rank 2 (...) and rank 3 (...)"; names eight ranks and counts the rest.
std::string names_of(const std::vector<Peer>& peers);

/// As text for other ranks, and back.
std::string pack(const Peer& peer);
Peer unpack_peer(const std::string& text);

}  // namespace lockstep::comm
