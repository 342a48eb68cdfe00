#pragma once
// Counts the collectives of each rank, and names the ranks at fault after an error.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/timer.h"
#include "lockstep/comm/rendezvous/peers.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/peer_connections.h"

namespace lockstep::comm {

class NodePage;

/// What to do when a host has stopped answering.
enum class OnSilence {
  note,         // waiting ranks look at host_is_silent()
  cut,          // cut the connections, so that waiting ranks get an error
  cut_and_log,  // the same, and log the reason: the error will come from another library
};

class PeerMonitor {
 public:
  /// Collective over the ranks of the store: the ranks of a node open a page of shared memory. `whole` is the
  /// monitor of the group that this group is a part of: a dead rank there may have ended ranks here.
  PeerMonitor(c10::intrusive_ptr<c10d::Store> store, std::vector<Peer> peers, int rank,
              std::shared_ptr<const PeerMonitor> whole = nullptr);
  ~PeerMonitor();

  /// Returns the number of the collective that begins. Throws if the group is dead.
  uint64_t begin(c10d::OpType type);
  /// Throws if the group is dead.
  void require_alive();
  /// The collective that begin() counted did not start.
  void cancel_begin();
  /// How many collectives have begun.
  uint64_t begun() const { return counter().load(std::memory_order_relaxed); }
  /// A process forked from this one never destroys that backend, whose destructor would wait for threads that
  /// the fork lacks, and change the epoll instance that it shares with this process. The backend owns this.
  void keep_in_forks(const c10::intrusive_ptr<c10d::Backend>& backend) {
    kept_in_forks_.push_back(backend.get());
  }
  /// In a forked process, which is no rank: the group does not work here.
  void become_copy();
  /// This rank takes part in no further collective.
  void leave();

  /// Finds the ranks at fault, declares the group dead and returns the error. `cause`: the backend's own.
  std::exception_ptr diagnose(const Collective& collective, const std::string& cause, bool timed_out);
  /// Calls `call` once, when the group dies; replaces the previous one. `call` must not call on_death().
  void on_death(std::function<void()> call);
  /// Whether a rank of this node has found out why the group is dead.
  bool knows_death() const;
  /// Whether the ranks compare every call: TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 0.
  bool compares_calls() const { return compares_calls_; }
  /// Declares the group dead because the ranks made different calls. All ranks of a node that detect this
  /// throw the same error.
  std::exception_ptr end_at(uint64_t collective, Difference difference);
  /// The same, and publishes the error in the store for ranks on other nodes, which wait.
  std::exception_ptr end_all_at(uint64_t collective, Difference difference);
  /// This rank ends by an error outside a collective: the other ranks report `what`, not a dead process.
  void publish_error(const std::string& what);
  /// Collectives over NCCL are counted here, too. If libtorch's watchdog ends this process because of the
  /// group that libtorch calls `name`, this rank names the ranks at fault.
  void watch_nccl(const std::string& name, std::chrono::milliseconds timeout) {
    nccl_name_ = name, nccl_timeout_ = timeout;
  }
  /// diagnose() of the newest collective, from libtorch's error about NCCL.
  std::exception_ptr diagnose_nccl(const std::string& what);
  /// diagnose() of something that does not end and is not a collective. Looks at the ranks of this node only.
  std::exception_ptr diagnose_stall(const std::string& what, std::chrono::milliseconds limit);
  /// Whether a rank of this node has ended and cannot begin collective `number` (0: any). Cheap.
  bool is_lost(int rank, uint64_t number) const;
  /// Whether a rank of this node has died or left, so that waiting for all ranks is pointless. Reads /proc.
  bool misses_rank() const;
  /// Whether a rank of this node that has not finished its part in `collective` has died, or left before it.
  /// gloo may wait for such a rank. Reads /proc once for each rank.
  bool waits_for_lost_rank(const Collective& collective) const;

  /// From now on, notices hosts that stop answering.
  void watch(PeerConnections connections, OnSilence on_silence);
  /// Whether a host has stopped answering.
  bool host_is_silent() const { return host_is_silent_.load(std::memory_order_acquire); }

  bool is_dead() const { return dead_.load(); }
  const std::vector<Peer>& peers() const { return peers_; }
  /// The group's store.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  int rank() const { return rank_; }

 private:
  std::atomic<uint64_t>& counter() const;
  void die();
  Fault find_fault(const Collective& collective, const std::string& cause, bool timed_out) const;
  Fault agreed_on_node() const;
  Fault agree_on_node(const Fault& found) const;
  Fault find_on_node(const Collective& collective, bool timed_out) const;
  Fault find_dead() const;
  Fault calls_on_node() const;
  Fault ask_other_nodes(const std::string& cause, bool timed_out, const Fault& found_here) const;
  bool pid_counts(const Peer& peer) const;
  void mark_silent(const std::vector<std::string>& addresses, std::chrono::milliseconds silence);
  std::string where() const;
  std::exception_ptr report_end(const std::string& what);
  Fault own_error(const std::string& what) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Peer> peers_;
  int rank_;
  std::shared_ptr<const PeerMonitor> whole_;
  std::unique_ptr<NodePage> page_;
  bool compares_calls_;
  mutable std::atomic<uint64_t> own_count_{0};  // where there is no page
  std::string nccl_name_;
  std::chrono::milliseconds nccl_timeout_{0};  // 0: not over NCCL
  std::vector<c10d::Backend*> kept_in_forks_;
  bool is_copy_ = false;
  std::atomic<bool> dead_{false};
  std::mutex mutex_;
  Fault death_;  // once dead_
  std::function<void()> on_death_;
  Fault silence_;  // written once, before host_is_silent_
  std::atomic<bool> host_is_silent_{false};
  std::unique_ptr<base::Timer> silence_timer_;  // uses the rest
  std::shared_ptr<void> end_hook_;              // calls report_end()
};

/// A backend that counts its collectives.
class MonitoredBackend {
 public:
  virtual ~MonitoredBackend() = default;
  virtual const std::shared_ptr<PeerMonitor>& shared_monitor() const = 0;
};

}  // namespace lockstep::comm
