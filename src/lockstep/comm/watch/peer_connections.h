#pragma once
// The connections to other hosts, and whether those hosts still answer. The kernels ask each other, so
// neither a slow step nor a stopped process is taken for a cut.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::comm {

/// A TCP connection of this process.
struct Connection {
  std::string to;            // an address
  bool to_own_host = false;  // both ends have the same one
  std::uint64_t socket = 0;  // its inode: a descriptor that was closed may be another file's by now
};
/// By descriptor.
using Connections = std::map<int, Connection>;
Connections connections();
/// Those of `all` that were opened since `before`.
Connections since(const Connections& before, Connections all);
/// Ends those that are still open, so that whoever waits for one meets an error.
void cut(const Connections& connections);

/// Connections that lead to other hosts.
class PeerConnections {
 public:
  /// From now on their hosts are asked, where nothing else is sent, six times in `silence`.
  PeerConnections(Connections open, std::chrono::milliseconds silence);

  /// The addresses that have not answered for that long.
  std::vector<std::string> silent() const;
  /// Ends the connections to those.
  void cut(const std::vector<std::string>& addresses) const;

  bool empty() const { return open_.empty(); }
  std::chrono::milliseconds silence() const { return silence_; }

 private:
  Connections open_;
  std::chrono::milliseconds silence_;
};

/// A thread that looks at lines until one is silent, and reports it once.
class ConnectionWatch {
 public:
  using Report = std::function<void(const PeerConnections& lines, const std::vector<std::string>& silent)>;
  ConnectionWatch(PeerConnections lines, Report report);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

 private:
  void look();

  PeerConnections lines_;
  Report report_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
