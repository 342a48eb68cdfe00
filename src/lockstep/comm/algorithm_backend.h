#pragma once
// A backend whose all-reduce is one of comm/algorithms, over the connections of another backend. That backend
// runs all other calls.

#include <atomic>
#include <memory>
#include <mutex>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/delayed.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/shm/call_queue.h"
#include "lockstep/comm/shm/intercepted_backend.h"
#include "lockstep/comm/shm/reduction.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// All-reduces run in the order of their calls on a thread of their own, while backward continues. Errors
/// arrive as c10d defines them, in the work's wait() and in its future.
class AlgorithmBackend : public InterceptedBackend, public MonitoredBackend, public MessageRunner {
 public:
  /// `base` is a MessageRunner, and counts its collectives in `monitor`.
  AlgorithmBackend(BackendPtr base, const Algorithm& algorithm, Delay delay,
                   std::shared_ptr<PeerMonitor> monitor, std::chrono::milliseconds timeout);
  ~AlgorithmBackend() override { monitor_->leave(); }
  const std::shared_ptr<PeerMonitor>& shared_monitor() const override { return monitor_; }
  const std::string getBackendName() const override { return algorithm_.name; }
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  uint64_t getSequenceNumberForGroup() override { return monitor_->begun(); }
  void setSequenceNumberForGroup() override {}

  /// For collectives that begin from now on.
  void set_delay(Delay delay);
  /// How long all-reduces have run here, in seconds.
  double busy() const { return queue_.busy(); }
  /// With the delay, on the caller's thread. Not while an all-reduce is under way.
  std::exception_ptr run_messages(const Collective& collective, const std::function<void(Messenger&)>& body,
                                  const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override { messages_.compare(own, collective); }

 protected:
  WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) override;

 private:
  std::exception_ptr run(const Collective& collective, const Tensors& tensors,
                         const std::vector<Reduction>& reductions);

  MessageRunner& messages_;
  const Algorithm& algorithm_;
  std::shared_ptr<PeerMonitor> monitor_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex mutex_;
  Delay delay_;
  CallQueue queue_;  // ends before the rest does
};

}  // namespace lockstep::comm
