#include "lockstep/comm/gloo_group.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <iostream>
#include <mutex>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/group_texts.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/comm/shm/intercepted_backend.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// Messages of one collective over gloo, without a timeout: the caller of the collective keeps the time.
class GlooMessenger : public GroupMessenger {
 public:
  GlooMessenger(c10d::ProcessGroupGloo& gloo, const PeerMonitor& monitor)
      : GroupMessenger(monitor), gloo_(gloo) {}

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  c10d::ProcessGroupGloo& gloo_;
};

std::vector<at::Tensor> tensors_over(std::span<const std::byte> bytes) {
  return {
      at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, at::kByte)};
}

// Gloo's own calls, not the overrides: these messages are not monitored one by one.
void GlooMessenger::transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto& [from, bytes] : in) {
    auto tensors = tensors_over(bytes);
    works.push_back(gloo_.Gloo::recv(tensors, from, kCollectiveTag));
  }
  for (const auto& [to, bytes] : out) {
    auto tensors = tensors_over(bytes);
    works.push_back(gloo_.Gloo::send(tensors, to, kCollectiveTag));
  }
  for (const auto& work : works) work->wait(kNever);
}

// gloo implements some collectives by others, which this class intercepts on the same thread. They get the
// timeout of the outer one.
class LimitOfCall {
 public:
  LimitOfCall(std::chrono::milliseconds asked, std::chrono::milliseconds otherwise) : before_(outer) {
    const bool none = asked == c10d::kUnsetTimeout || asked == kNever;
    limit_ = !none ? asked : before_ != kNever ? before_ : otherwise;
    outer = limit_;
  }
  ~LimitOfCall() { outer = before_; }
  LimitOfCall(LimitOfCall&&) = delete;
  std::chrono::milliseconds get() const { return limit_; }

 private:
  inline static thread_local std::chrono::milliseconds outer = kNever;  // kNever: this is the outermost
  std::chrono::milliseconds before_, limit_;
};

// A work without a future consists of collectives that this class has intercepted.
bool has_future(const c10d::Work* work) {
  if (const auto* watched = dynamic_cast<const WatchedWork*>(work)) return has_future(watched->inner());
  return dynamic_cast<const Gloo::AsyncWork*>(work) != nullptr;
}

/// PyTorch's gloo backend with a monitor, so that errors name the ranks at fault. It derives from
/// ProcessGroupGloo, because c10d's Logger casts every backend named "gloo" to that class.
class WatchedGloo : public Intercepted<c10d::ProcessGroupGloo>,
                    public MonitoredBackend,
                    public MessageRunner {
 public:
  WatchedGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
              const c10::intrusive_ptr<Options>& options, std::shared_ptr<PeerMonitor> monitor)
      : Intercepted(nullptr, store, rank, world, options), monitor_(std::move(monitor)) {}
  ~WatchedGloo() override;
  const std::shared_ptr<PeerMonitor>& shared_monitor() const override { return monitor_; }
  std::exception_ptr run_messages(const Collective& collective, const std::function<void(Messenger&)>& body,
                                  const OnGivenUp& on_given_up) override;
  void compare(const Call& own, const Collective& collective) override;
  /// Sets the timeout of all later collectives. `lines` are gloo's connections. A group that dies is cut off
  /// and never destroyed: gloo's destructor can wait forever for a dead peer.
  void keep_time(std::chrono::milliseconds timeout, Connections lines);
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  void setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

 protected:
  WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) override;

 private:
  WorkPtr watch_message(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner);
  void compare_in(CollectiveWatch& watch, const Call& own, uint64_t number);

  std::shared_ptr<PeerMonitor> monitor_;
  std::shared_ptr<TimeoutThread> timeouts_;
};

// before the sockets close, so that other ranks can tell an orderly end from a death
WatchedGloo::~WatchedGloo() {
  monitor_->leave();
  if (!timeouts_) return;
  monitor_->on_death([this] { timeouts_->cut_connections(); });  // too late to keep the object alive
  timeouts_->drain();  // gloo's destructor waits for all calls under way
  monitor_->on_death({});
}

void WatchedGloo::keep_time(std::chrono::milliseconds timeout, Connections lines) {
  options_->timeout = timeout;
  for (const auto& context : contexts_) context->setTimeout(kNever);
  timeouts_ = std::make_shared<TimeoutThread>(std::move(lines), monitor_);
  monitor_->on_death([this] {
    timeouts_->cut_connections();
    c10::raw::intrusive_ptr::incref(this);
  });
}

// All ranks run the same small all-gather, whichever call follows, and compare the calls.
void WatchedGloo::compare_in(CollectiveWatch& watch, const Call& own, uint64_t number) {
  const auto gather = [&](const std::string& bytes) {
    Tensors mine = {bytes_of(bytes)};
    TensorLists all(1);
    for (int rank = 0; rank < getSize(); ++rank) all[0].push_back(at::empty_like(mine[0]));
    c10d::AllgatherOptions options;
    options.timeout = kNever;
    // not all_gather_single, which this class intercepts  NOLINTNEXTLINE(bugprone-parent-virtual-call)
    const auto work = Gloo::allgather(all, mine, options);
    wait_unless_given_up(*work, watch);
    std::vector<std::string> texts;
    for (const auto& theirs : all[0]) texts.push_back(text_of(theirs));
    return texts;
  };
  Difference found;
  try {
    found = difference(own, gather);
  } catch (const std::exception&) {
    watch.mark_done();
    std::rethrow_exception(watch.diagnose(std::current_exception()));
  }
  if (found.empty()) return;
  watch.mark_done();
  std::rethrow_exception(monitor_->end_at(number, found));
}

void WatchedGloo::compare(const Call& own, const Collective& collective) {
  auto watch = std::make_shared<CollectiveWatch>(monitor_, collective);
  timeouts_->add(watch);
  compare_in(*watch, own, collective.number);
  watch->mark_done();
}

std::exception_ptr WatchedGloo::run_messages(const Collective& collective,
                                             const std::function<void(Messenger&)>& body,
                                             const OnGivenUp& on_given_up) {
  auto watch = std::make_shared<CollectiveWatch>(monitor_, collective);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { watch->mark_done(); });
  try {
    timeouts_->add(watch);
    if (on_given_up) watch->when_given_up(on_given_up);
    GlooMessenger messenger(*this, *monitor_);
    body(messenger);
    return nullptr;
  } catch (const std::exception&) {
    return watch->diagnose(std::current_exception());
  }
}

WatchedGloo::WorkPtr WatchedGloo::around(const BackendCall& call, Tensors& outputs, Tensors& inputs,
                                         InnerCall inner) {
  if (call.is_message()) return watch_message(call, outputs, inputs, inner);
  const LimitOfCall limit(call.timeout, options_->timeout);
  const Collective collective{op_name(call.type), monitor_->begin(call.type), limit.get()};
  auto watch = std::make_shared<CollectiveWatch>(monitor_, collective);
  timeouts_->add(watch);
  if (monitor_->compares_calls())
    compare_in(*watch, call_of(call.type, tensors_alike(call, outputs, inputs), details_of(call)),
               collective.number);
  try {
    auto work = inner(outputs, inputs, kNever);  // this class keeps the timeout
    if (has_future(work.get())) {
      work->getFuture()->addCallback([watch](c10::ivalue::Future&) { watch->mark_done(); });
    } else {
      watch->mark_done();
    }
    return c10::make_intrusive<WatchedWork>(std::move(work), std::move(watch), timeouts_, getRank(),
                                            call.type);
  } catch (const std::exception&) {
    // invalid arguments: it never began
    watch->mark_done();
    monitor_->cancel_begin();
    throw;
  }
}

WatchedGloo::WorkPtr WatchedGloo::watch_message(const BackendCall& call, Tensors& outputs, Tensors& inputs,
                                                InnerCall inner) {
  monitor_->require_alive();
  if (call.type != OpType::RECVANYSOURCE) {
    const char* what = call.type == OpType::SEND ? "the receiver of a message" : "the sender of a message";
    require_rank(call.root, getSize(), what);
    // gloo has no connection from a rank to itself, and does not check that
    if (call.root == getRank())
      throw InputError("gloo cannot send a message from a rank to itself", "",
                       "copy the tensor, or choose the backend mpi");
  }
  TORCH_CHECK(call.tag != kCollectiveTag, "the tag ", call.tag, " is reserved by lockstep: use another");
  auto watch = std::make_shared<CollectiveWatch>(
      monitor_, message_with(call.type, static_cast<int>(call.root), options_->timeout));
  try {
    return c10::make_intrusive<WatchedWork>(inner(outputs, inputs, kNever), watch, timeouts_, getRank(),
                                            call.type);
  } catch (const c10::Error&) {
    throw;  // invalid arguments
  } catch (const std::exception&) {
    std::rethrow_exception(watch->diagnose(std::current_exception()));
  }
}

c10::intrusive_ptr<Gloo::Options> options_for(const Job& job, std::chrono::milliseconds timeout) {
  const auto interface = own_interface(job.nodes > 1);
  auto options = Gloo::Options::create(timeout);
  std::istringstream names(interface.name);
  for (std::string name; std::getline(names, name, ',');)
    options->devices.push_back(Gloo::createDeviceForInterface(name));
  if (interface.name.empty()) options->devices.push_back(Gloo::createDeviceForHostname(interface.address));
  options->threads = static_cast<int>(options->devices.size()) * 2;  // as Python's init_process_group
  return options;
}

// gloo in libtorch 2.9 and 2.10 prints its connections on standard output, which belongs to the program's
// results. This redirects them to standard error.
class StdoutRedirect {
 public:
  StdoutRedirect() {
    const std::lock_guard guard(mutex);
    if (count++ == 0) own = std::cout.rdbuf(std::cerr.rdbuf());
  }
  ~StdoutRedirect() {
    const std::lock_guard guard(mutex);
    if (--count == 0) std::cout.rdbuf(own);
  }
  StdoutRedirect(StdoutRedirect&&) = delete;

 private:
  static inline std::mutex mutex;
  static inline int count = 0;  // several groups may connect at the same time
  static inline std::streambuf* own = nullptr;
};

}  // namespace

void check_gloo_interface(const Job& job) {
  own_interface(job.nodes > 1);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const Job& job,
                                            const LaunchOptions& settings,
                                            std::shared_ptr<PeerMonitor> monitor) {
  // the options' timeout governs gloo's own rendezvous first, then the collectives
  auto options = options_for(job, settings.join_timeout);
  try {
    const StdoutRedirect aside;
    const Connections before = connections();
    auto backend = c10::make_intrusive<WatchedGloo>(store, job.rank, job.world, options, monitor);
    backend->keep_time(settings.timeout, since(before, connections()));
    return backend;
  } catch (const std::exception& error) {
    std::rethrow_exception(
        monitor->diagnose({"connecting gloo", 0, settings.join_timeout}, error.what(), false));
  }
}

}  // namespace lockstep::comm
