#pragma once
// Where the ranks of a job meet. A pure function of the environment and the job: no port is guessed.

#include <cstdint>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::comm {

enum class Meeting {
  alone,          // world 1: a store in this process
  shared_memory,  // MPI, one node: a store in shared memory, whose name goes over MPI; no port at all
  tcp_over_mpi,   // MPI, several nodes: rank 0 listens on a port the kernel gave it, told over MPI
  tcp_client,     // torchrun's agent holds a store, or rank 0 waits and this is another rank
  tcp_host,       // this is rank 0, and waits at MASTER_ADDR:MASTER_PORT
  file,           // neither MPI nor MASTER_ADDR: a file that says where rank 0 is, named after the job step
};

struct Rendezvous {
  Meeting how = Meeting::alone;
  std::string host;        // tcp_client, tcp_host
  std::uint16_t port = 0;  // tcp_client, tcp_host
  bool agent = false;      // torchrun's holds the store
  bool one_node = false;   // and every rank was told so
  std::string path;        // file
  std::string prefix;      // keeps the keys of a restarted job apart from those of the first try
  std::string because;     // in a person's words
};

/// Throws InputError where the environment is half set or a port cannot be one.
Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job, bool has_mpi);

}  // namespace lockstep::comm
