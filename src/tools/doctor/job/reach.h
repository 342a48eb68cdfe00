#pragma once
// Whether the nodes reach one another at the addresses that gloo takes: each listens, and is called.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// Where a process can be called.
struct Door {
  std::string host;
  std::string address;
  int port = 0;
};

/// Listens on any port of the address; the kernel answers, whatever this process does meanwhile. Throws
/// Error.
std::pair<base::Descriptor, int> listen_at(const std::string& address);

/// By door: why it was not reached; one that was is not there. All are called at once.
std::map<size_t, std::string> call(const std::vector<Door>& doors, std::chrono::milliseconds patience);

/// Which of `count` nodes the node calls: all others of a few, else its neighbours and node 0.
std::vector<size_t> calls_of(size_t node, size_t count);

/// One call that failed.
struct Unreached {
  std::string from;  // a host
  Door door;
  std::string why;
};
Findings judge_reach(const std::vector<Unreached>& unreached, size_t calls);

}  // namespace lockstep::doctor
