#include "lockstep/comm/meet/peers.h"

#include <cerrno>
#include <csignal>

#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, rank, node, pid, pid_space, host, address)

std::string name_of(const Peer& peer) {
  return format("rank {} (host {}, pid {})", peer.rank_in_job(), base::printable(peer.host), peer.pid);
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

ProcessState process_state(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::gone;
  const auto line = base::first_line(format("/proc/{}/stat", pid));
  if (line.empty()) return ::kill(pid, 0) == 0 ? ProcessState::running : ProcessState::gone;
  // the state is the field after the command, which is in parentheses and may hold any character
  const size_t end = line.rfind(')');
  const char state = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  if (state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

}  // namespace lockstep::comm
