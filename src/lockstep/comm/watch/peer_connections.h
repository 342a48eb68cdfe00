#pragma once
// The connections to other hosts, and whether those hosts still answer. This uses TCP keepalive, which the
// kernels answer, so a slow step or a stopped process does not count as a lost host.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::comm {

/// A TCP connection of this process.
struct Connection {
  std::string to;            // an address
  bool to_own_host = false;  // both ends have the same one
  std::uint64_t socket = 0;  // its inode: after a close the descriptor may be another file
};
/// By descriptor.
using Connections = std::map<int, Connection>;
Connections connections();
/// Those of `all` that were opened since `before`.
Connections since(const Connections& before, Connections all);
/// Ends those that are still open, so that threads that wait for them get an error.
void cut(const Connections& connections);

/// Connections that lead to other hosts.
class PeerConnections {
 public:
  /// From now on the kernel probes idle connections six times in `silence`.
  PeerConnections(Connections open, std::chrono::milliseconds silence);

  /// The addresses that have not answered for `silence`.
  std::vector<std::string> silent() const;
  /// Ends the connections to those.
  void cut(const std::vector<std::string>& addresses) const;

  bool empty() const { return open_.empty(); }
  std::chrono::milliseconds silence() const { return silence_; }
  /// How often to look at silent().
  std::chrono::milliseconds period() const;

 private:
  Connections open_;
  std::chrono::milliseconds silence_;
};

}  // namespace lockstep::comm
