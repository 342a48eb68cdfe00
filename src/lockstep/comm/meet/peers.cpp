#include "lockstep/comm/meet/peers.h"

#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, rank, node, pid, pid_space, host, address)

Peer own_peer(int rank, int node, const std::string& host, const std::string& address) {
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0;
  return {rank, node, ::getpid(), known ? static_cast<unsigned long>(space.st_ino) : 0, host, address, -1};
}

std::string name_of(const Peer& peer) {
  return format("rank {} (host {}, pid {})", peer.rank_in_job(), peer.host, peer.pid);
}

std::string names_of(const std::vector<Peer>& peers) {
  std::vector<std::string> names;
  for (const auto& peer : peers) names.push_back(name_of(peer));
  return base::listed(names, names.size());
}

std::string pack(const Peer& peer) {
  return base::as_line(nlohmann::json(peer));
}

Peer unpack_peer(const std::string& text) {
  return base::from_rank<Peer>(text);
}

}  // namespace lockstep::comm
