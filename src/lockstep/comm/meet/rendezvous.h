#pragma once
// Where the ranks of a job meet. It depends only on the environment and the job; lockstep never guesses a
// port.

#include <cstdint>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::comm {

enum class Meeting {
  agent,    // torchrun's agent has a store at host:port
  local,    // all ranks are on one machine: rank 0 has a store at `path`
  address,  // rank 0 listens at host:port
  file,     // rank 0 listens at a port that the kernel chooses, and writes it to `path`
};

struct Rendezvous {
  Meeting how = Meeting::local;
  std::string host = {};     // agent, address
  std::uint16_t port = 0;    // agent, address
  std::string path = {};     // local, file
  std::string prefix = {};   // separates the keys of a restarted job from those of the first attempt
  std::string because = {};  // the reason, for the log
};

/// For several ranks without MPI. Throws InputError if the environment is incomplete or the port is invalid.
Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job);

/// In this user's private folder on this machine: LOCKSTEP_RENDEZVOUS_DIR, TMPDIR or /tmp.
std::string private_path(const launch::Environment& environment, const std::string& name);

/// A random name for one start of a job.
std::string random_word();

}  // namespace lockstep::comm
