#pragma once
// What measurements between ranks bring, and what it means: apart from the measuring, so that tests can make
// results up.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/meet/network.h"
#include "lockstep/launch/scheduler.h"
#include "tools/doctor/facts.h"

namespace lockstep::comm {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkAddress, interface, address, loopback, bits)
}

namespace lockstep::doctor {

// --- interfaces and addresses, which of them gloo and NCCL use, and whether nodes reach each other
// (network.cpp) ---

/// What one rank knows of its node's network.
struct RankNetwork {
  int rank = 0;
  int node = 0;
  std::string host;
  std::vector<comm::NetworkAddress> interfaces;
  std::string nccl_wanted;      // NCCL_SOCKET_IFNAME
  std::string gloo;             // the address that gloo uses; empty where it finds none
  std::string refused, remedy;  // why not

  /// The interface that has gloo's address; empty where there is none.
  std::string gloo_interface() const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankNetwork, rank, node, host, interfaces, nccl_wanted, gloo, refused,
                                   remedy)

RankNetwork network_of(const Job& job, const comm::NetworkFacts& facts, const std::string& nccl_wanted);

/// The interface NCCL would use for its sockets, by NCCL's own order; empty where there is none.
std::string nccl_interface(const RankNetwork& network);

/// "10.0.1.5/16" -> "10.0.0.0/16"
std::string subnet_of(const comm::NetworkAddress& address);

/// Of all ranks, in rank order.
Findings network_findings(const std::vector<RankNetwork>& networks, int nodes);

/// Where a node listens.
struct Listener {
  std::string host;
  std::string address;
  int port = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Listener, host, address, port)

/// Listens on a free port of the address; the kernel accepts connections whatever this process does. Throws
/// Error.
std::pair<base::Descriptor, int> listen_at(const std::string& address);

/// Connects to all at once. By listener: why it was not reached, empty where it was.
std::vector<std::string> connect_to(const std::vector<Listener>& listeners,
                                    std::chrono::milliseconds timeout);

/// Which of `count` nodes a node connects to: all others of a few, else its neighbours and node 0.
std::vector<size_t> partners_of(size_t node, size_t count);

/// A connection that failed.
struct Unreached {
  std::string from;  // a host
  Listener to;
  std::string why;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Unreached, from, to, why)
Finding reach_finding(const std::vector<Unreached>& unreached, size_t tried);

// --- the data and run folders as every node sees them (folders.cpp) ---

struct FolderView {
  int rank = 0;
  std::string host = {};
  bool answered = true;         // false: the file system did not answer in time
  std::string there = {};       // the folder, or the nearest existing one above it
  std::string unreadable = {};  // why it, or a file in it, cannot be read
  std::string unwritable = {};  // why a file cannot be created there
  std::string kind = {};        // of its file system: "nfs"
  long long free = -1;          // bytes for this user; -1 = not known
  long long entries = 0;        // that were looked at
  std::string digest = {};      // of the names and sizes of the entries; empty where there are too many
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderView, rank, host, answered, there, unreadable, unwritable, kind,
                                   free, entries, digest)

/// The data are read, and runs are written to a folder that need not exist yet.
enum class Purpose { to_read, to_write };

/// Looks within the timeout: a file server that is gone blocks whoever asks it for ever, so a thread may be
/// left behind.
FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds timeout);

/// How a node fared with what rank 0 has put into the run folder.
struct FolderAccess {
  int rank = 0;
  std::string host = {};
  double seen_after = -1;       // seconds until it saw rank 0's file; -1 = never
  std::string unwritten = {};   // why it could not write a file beside it
  bool arrived = false;         // rank 0 has seen that file
  bool lock_held = true;        // the run's lock, which rank 0 holds, is refused to this node
  std::string lock_error = {};  // flock's error, where there are no locks
  bool lock_hangs = false;      // flock did not return
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderAccess, rank, host, seen_after, unwritten, arrived, lock_held,
                                   lock_error, lock_hangs)

/// `views`: one a node, rank 0's first.
Findings data_findings(const std::string& path, const std::vector<FolderView>& views);
Findings runs_findings(const std::string& path, const std::vector<FolderView>& views);
Findings sharing_findings(const std::vector<FolderView>& views, const std::vector<FolderAccess>& accesses);

/// A new file or folder in somebody else's folder, removed with this object, or by remove_probes() when the
/// process is about to end. Throws Error with the system's reason.
class Probe {
 public:
  enum class Kind { file, folder };
  Probe(const std::string& folder, const std::string& name, Kind kind);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  const std::string& path() const { return path_; }
  /// Of a file, open to write.
  base::Descriptor& file() { return file_; }

 private:
  std::string path_;
  base::Descriptor file_;
};
void remove_probes();

// --- when the batch system ends the job, and how far the hosts' clocks are apart (times.cpp) ---

Finding deadline_finding(const Job& job, std::optional<launch::Time> end, launch::Time now);

/// A rank's clock compared with rank 0's, in seconds.
struct ClockSkew {
  int rank = 0;
  std::string host;
  double ahead = 0;
  double error = 0;  // at most
};
Finding clocks_finding(const std::vector<ClockSkew>& skews);

// --- sums that are known beforehand (backends.cpp) ---

/// Small whole numbers, different for each rank and round: their sums are exact in floats.
at::Tensor numbers_of(int64_t items, int round, int rank);

/// Empty where `sum` is the sum over all ranks of the world; else where it first is not.
std::string fault_in(const at::Tensor& sum, int round, int world);

/// Of an all-reduce, NCCL's "bus bandwidth".
double bus_bandwidth(int64_t bytes, double seconds, int world);

// --- how quickly messages travel between two ranks (lines.cpp) ---

using Pair = std::pair<int, int>;  // of ranks, the lower one first

/// The pairs to time, in one order for all ranks, so that no ranks wait for each other in a cycle. `node_of`:
/// by rank.
std::vector<Pair> pairs_to_time(const std::vector<int>& node_of);

struct PairTime {
  Pair pair;
  bool across = false;      // between two nodes
  double latency = 0;       // seconds, one way
  double bytes_second = 0;  // of larger messages
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PairTime, pair, across, latency, bytes_second)

/// Collective. Of this rank's pairs, those in which it is the lower rank.
std::vector<PairTime> time_pairs(Messenger& messenger, const std::vector<Pair>& pairs);

/// The slowest pair between nodes and within them; a warning where pairs are much slower than the others, or
/// than any network of a cluster. `hosts`: by rank.
Findings pair_findings(const std::vector<PairTime>& times, const std::vector<std::string>& hosts);

// --- what NCCL reports about itself (nccl.cpp) ---

struct Nccl {
  std::string version;              // "2.27.3"; empty where no library is loaded
  std::string path;                 // of its library
  std::string network;              // "Socket", "IB", "AWS Libfabric"
  std::string transport;            // of its channels: "P2P/CUMEM", "NET/Socket/0", several with commas
  std::vector<std::string> fabric;  // what this node has: "mlx5_0", "hsn0"
};

/// Network and transport, from NCCL's own log (NCCL_DEBUG=INFO).
void read_log(const std::string& text, Nccl& nccl);
/// Version and path of the NCCL that this process has loaded.
void find_library(Nccl& nccl);
/// 22703 -> "2.27.3"; before 2.9 the numbers are shorter: 2708 -> "2.7.8".
std::string nccl_version_text(int code);
/// The devices of InfiniBand and the like, and Slingshot's interfaces, under /sys/class.
std::vector<std::string> fabric_here(const std::string& root = "/sys/class");

Finding nccl_finding(const Nccl& nccl, int nodes);

/// While it lives, NCCL logs to a file of ours, whatever people set; then their settings are restored.
class NcclLog {
 public:
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;
  std::string text() const;

 private:
  std::optional<Probe> file_;
  std::vector<std::pair<const char*, std::optional<std::string>>> former_;
};

}  // namespace lockstep::doctor
