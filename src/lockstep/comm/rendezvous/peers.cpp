#include "lockstep/comm/rendezvous/peers.h"

#include <cerrno>
#include <csignal>
#include <fstream>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

std::string name_of(const Peer& peer) {
  return format("rank {} (host {}, pid {})", peer.rank_in_job(), base::printable(peer.host), peer.pid);
}

std::string names_of(const std::vector<Peer>& peers) {
  std::vector<std::string> names;
  for (const auto& peer : peers) names.push_back(name_of(peer));
  return base::listed(names, names.size());
}

ProcessState process_state(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::gone;
  std::ifstream file(format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return ::kill(pid, 0) == 0 ? ProcessState::running : ProcessState::gone;
  // the state is the field after the command, which is in parentheses and may hold any character
  const size_t end = line.rfind(')');
  const char state = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  if (state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

}  // namespace lockstep::comm
