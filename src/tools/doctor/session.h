#pragma once
// Rounds in which every rank of the job sends JSON to rank 0, which answers all of them; what is measured in
// such rounds; and what the results mean, as functions that tests can call.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/scheduler.h"
#include "tools/doctor/doctor.h"

namespace lockstep::comm {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkAddress, interface, address, loopback, bits)
}

namespace lockstep::doctor {

/// A round failed. Every rank that took part throws it, with the same findings.
struct RoundFailed : std::exception {
  explicit RoundFailed(Findings findings) : findings(std::move(findings)) {}
  Findings findings;
};

class Session {
 public:
  using Json = nlohmann::json;
  /// What rank 0 makes of all ranks' values, which it gets in rank order.
  using Answer = std::function<Json(const std::vector<Json>& values)>;

  /// A round waits no longer than `timeout` for a rank.
  Session(launch::Runtime& runtime, const DoctorSettings& settings, const RankFacts& own,
          std::chrono::milliseconds timeout)
      : runtime(runtime), settings(settings), own(own), timeout_(timeout) {}

  /// Collective: does `work` on this rank and returns rank 0's answer to all ranks' values. If `work` threw
  /// on some ranks, or a rank did not respond, it throws RoundFailed on every rank.
  Json round(const std::function<Json()>& work, const Answer& answer = {});

  const Job& job() const { return runtime.job(); }
  bool is_first_of_node() const { return job().rank == 0 || job().local_rank == 0; }
  /// The ranks that did not take part in a round. No round works after that.
  const std::vector<int>& lost() const { return lost_; }
  bool is_broken() const { return is_broken_; }

  launch::Runtime& runtime;
  const DoctorSettings& settings;
  const RankFacts& own;           // this rank's
  Cluster cluster = {};           // on rank 0: the facts of all ranks
  std::string gloo_problem = {};  // why no backend over gloo can open

 private:
  Json reply_to(const std::vector<std::string>& texts, const Answer& answer) const;
  Finding missing(const std::exception& error) const;

  std::chrono::milliseconds timeout_;
  std::vector<int> lost_;
  bool is_broken_ = false;
};

/// What the ranks measure together. Every rank calls each of these in the table's order and adds its
/// findings. Only rank 0's are printed.
struct Measurement {
  const char* name;
  void (*run)(Session& session, Findings& findings);
};

void measure_deadline(Session& session, Findings& findings);
void measure_interfaces(Session& session, Findings& findings);
void measure_reach(Session& session, Findings& findings);
void measure_clocks(Session& session, Findings& findings);
void measure_folders(Session& session, Findings& findings);
void measure_shared(Session& session, Findings& findings);
void measure_gloo(Session& session, Findings& findings);
void measure_mpi(Session& session, Findings& findings);
void measure_nccl(Session& session, Findings& findings);

inline constexpr Measurement kMeasurements[] = {
    {"deadline", measure_deadline}, {"interfaces", measure_interfaces},
    {"reach", measure_reach},       {"clocks", measure_clocks},
    {"folders", measure_folders},   {"shared", measure_shared},
    {"gloo", measure_gloo},         {"mpi", measure_mpi},
    {"nccl", measure_nccl},
};

/// Removes the doctor's own files in the run folder: for a process that is about to end.
void remove_probes();

// --- interfaces and addresses (network.cpp) ---

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

/// Of all ranks, in rank order.
Findings network_findings(const std::vector<RankNetwork>& networks, int nodes);

// --- the data and run folders on every node (folders.cpp) ---

struct FolderView {
  std::string host = {};
  std::string there = {};    // the folder, or the nearest existing one above it
  std::string problem = {};  // why it cannot be read or written to
  std::string kind = {};     // of its file system: "nfs"
  long long free = -1;       // bytes for this user; -1 = not known
  long long entries = 0;     // that were looked at
  std::string digest = {};   // of the names and sizes of the entries; empty where there are too many
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderView, host, there, problem, kind, free, entries, digest)

/// The data are read, and runs are written to a folder that need not exist yet.
enum class Purpose { to_read, to_write };

inline constexpr const char* kNoAnswer = "the file system did not answer in time";  // a FolderView's problem
/// Looks within the timeout. A file system that does not respond blocks forever, so a thread may be left.
FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds timeout);

/// How a node fared with the folder and the lock that rank 0 made in the run folder.
struct FolderAccess {
  std::string host = {}, kind = {};  // kind: of the node's file system
  bool sees_file = false;            // rank 0's file
  bool is_seen = false;              // rank 0 sees this node's file
  bool sees_lock = false;            // the run's lock, which rank 0 holds
  bool hangs = false;                // looking at the lock did not return
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderAccess, host, kind, sees_file, is_seen, sees_lock, hangs)

/// `views`: one a node, rank 0's first.
Findings data_findings(const std::string& path, const std::vector<FolderView>& views);
Findings runs_findings(const std::string& path, const std::vector<FolderView>& views);
Findings sharing_findings(const FolderView& first, const std::vector<FolderAccess>& accesses);

// --- when the batch system ends the job, and how far apart the hosts' clocks are ---

Finding deadline_finding(const Job& job, std::optional<launch::Time> end, launch::Time now);

/// A rank's clock compared with rank 0's, in seconds.
struct ClockSkew {
  int rank = 0;
  std::string host;
  double ahead = 0;
  double error = 0;  // at most
};
Finding clocks_finding(const std::vector<ClockSkew>& skews);

// --- backends.cpp ---

/// Of an all-reduce, NCCL's "bus bandwidth".
double bus_bandwidth(int64_t bytes, double seconds, int world);

/// Of NCCL's log (NCCL_DEBUG=INFO): its network and the transports of its channels. `fabric`: the fast
/// network devices of this node, "mlx5_0", "hsn0".
Finding nccl_finding(const std::string& log, const std::vector<std::string>& fabric, int nodes);

}  // namespace lockstep::doctor
