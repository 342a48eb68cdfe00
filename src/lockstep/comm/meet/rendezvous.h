#pragma once
// Where the ranks of a job meet. A pure function of the environment and the job: no port is guessed.

#include <cstdint>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::comm {

enum class Meeting {
  agent,    // torchrun's agent holds a store at host:port
  local,    // all ranks share a machine: rank 0 has a store at `path`
  address,  // rank 0 listens at host:port
  file,     // rank 0 listens at a port that the kernel chose, and `path` tells it
};

struct Rendezvous {
  Meeting how = Meeting::local;
  std::string host = {};     // agent, address
  std::uint16_t port = 0;    // agent, address
  std::string path = {};     // local, file
  std::string prefix = {};   // keeps the keys of a restarted job apart from those of the first attempt
  std::string because = {};  // in a person's words
};

/// For several ranks without MPI. Throws InputError where the environment is half set or no port is valid.
Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job);

/// In this user's private folder on this machine: LOCKSTEP_RENDEZVOUS_DIR, TMPDIR or /tmp.
std::string private_path(const launch::Environment& environment, const std::string& name);

/// A random name for one start of a job.
std::string random_word();

}  // namespace lockstep::comm
