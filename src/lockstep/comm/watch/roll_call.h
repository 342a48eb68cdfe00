#pragma once
// Who has not come? Counts collectives at the cost of one store each, and after an error names the ranks at
// fault.

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
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/findings.h"
#include "lockstep/comm/watch/peer_connections.h"

namespace lockstep::comm {

/// What is done when a host has stopped answering.
enum class OnSilence {
  tell,         // who waits asks heard_nothing()
  cut,          // who waits meets an error at its connection
  cut_and_say,  // the same, and the error will not be ours, so it is said here
};

class RollCall {
 public:
  /// A collective call over the ranks of the store: each node's ranks open their page. `whole`: that of the
  /// group which this one is a part of; a rank out there may have died, and taken one of these along.
  RollCall(c10::intrusive_ptr<c10d::Store> store, std::vector<Peer> peers, int rank,
           std::shared_ptr<const RollCall> whole = nullptr);
  ~RollCall();

  /// Throws when the group is dead; otherwise the number of the collective that begins.
  uint64_t begin(c10d::OpType type);
  /// Throws when the group is dead.
  void require_alive();
  void take_back();
  /// Collectives so far.
  uint64_t begun() const { return counter().load(std::memory_order_relaxed); }
  /// Takes part in no further collective.
  void leave();

  /// Finds who is at fault, declares the group dead and returns the error to throw. `cause` is the backend's
  /// own.
  std::exception_ptr diagnose(const Collective& collective, const std::string& cause, bool timed_out);
  /// Called once, when the group dies; in place of what was to be called before. Not from within itself.
  void at_death(std::function<void()> call);
  /// Whether a rank of this node has found out why the group is dead.
  bool knows_death() const { return heard_nothing() || (page_ && !page_->agreed().empty()); }
  /// Whether every call is compared over the ranks: TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 0.
  bool compares_calls() const { return compares_calls_; }
  /// The ranks have called different things: the group is dead, and the same is to be thrown on all of a node
  /// that know it. `found` says how it was found out.
  std::exception_ptr end_at(uint64_t collective, Difference difference,
                            const std::string& found = "compared because of TORCH_DISTRIBUTED_DEBUG=DETAIL");
  /// The same, where other nodes wait in their connections to this one: they find it in the store.
  std::exception_ptr end_all_at(uint64_t collective, Difference difference);
  /// This rank ends by an error that is no collective's: the others say `what` in place of a death.
  void tell_end(const std::string& what);
  /// NCCL's collectives are counted here, too: where libtorch's watchdog ends this process because one of the
  /// group that libtorch calls `name` does not end, or fails, this rank names those at fault.
  void speak_for_nccl(const std::string& name, std::chrono::milliseconds timeout) {
    nccl_name_ = name, nccl_timeout_ = timeout;
  }
  /// diagnose() of the newest collective, by what libtorch says of NCCL.
  std::exception_ptr judge_nccl(const std::string& what);
  /// diagnose() of what stands still and is no collective of its own: of this node's ranks alone.
  std::exception_ptr judge_stall(const std::string& what, std::chrono::milliseconds limit);
  /// Whether a rank of this node has ended and can never come to collective `number` (0: to anything): cheap
  /// enough to ask ten times a second while waiting for it.
  bool is_lost(int rank, uint64_t number) const;
  /// Whether a rank of this node whose part in `collective` is not done has died, or left before it: gloo may
  /// wait for it all the same. Reads /proc once for each rank.
  bool is_hopeless(const Collective& collective) const;

  /// From now on a host that stops answering is noticed.
  void watch(PeerConnections lines, OnSilence on_silence);
  /// Whether a host has stopped answering.
  bool heard_nothing() const { return heard_nothing_.load(std::memory_order_acquire); }

  bool is_dead() const { return dead_.load(); }
  const std::vector<Peer>& peers() const { return peers_; }
  /// The group's.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  int rank() const { return rank_; }

 private:
  std::atomic<uint64_t>& counter() const { return page_ ? page_->of(rank_).begun : own_count_; }
  void die();
  Fault find_fault(const Collective& collective, const std::string& cause, bool timed_out) const;
  Fault agreed_here() const;
  Fault agree_here(const Fault& found) const;
  Fault look_here(const Collective& collective, bool timed_out) const;
  Fault look_for_dead() const;
  Fault waits_here() const;
  Fault ask_elsewhere(const std::string& cause, bool timed_out, const Fault& found_here) const;
  bool pid_counts(const Peer& peer) const;
  void lose(const std::vector<std::string>& addresses, std::chrono::milliseconds silence);
  std::string where() const;
  std::exception_ptr last_words(const std::string& what);
  Fault own_error(const std::string& what) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Peer> peers_;
  int rank_;
  std::shared_ptr<const RollCall> whole_;
  std::unique_ptr<RollPage> page_;
  bool compares_calls_;
  mutable std::atomic<uint64_t> own_count_{0};  // where there is no page
  std::string nccl_name_;
  std::chrono::milliseconds nccl_timeout_{0};  // 0: not over NCCL
  std::atomic<bool> dead_{false};
  std::mutex mutex_;
  Fault death_;  // once dead_
  std::function<void()> at_death_;
  Fault silence_;  // written once, before heard_nothing_
  std::atomic<bool> heard_nothing_{false};
  std::unique_ptr<base::Timer> silence_timer_;  // uses the rest
  std::shared_ptr<void> last_words_;
};

/// A backend that counts its collectives.
class RollCalled {
 public:
  virtual ~RollCalled() = default;
  virtual const std::shared_ptr<RollCall>& shared_roll() const = 0;
  const RollCall& roll() const { return *shared_roll(); }
};

}  // namespace lockstep::comm
