#include "lockstep/comm/watched_gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

// Messages of one collective over gloo, which waits as long as it takes: who begins the collective keeps
// time.

class GlooMessenger : public Messenger {
 public:
  GlooMessenger(c10d::ProcessGroupGloo& gloo, const RollCall& roll) : gloo_(gloo), roll_(roll) {}
  int rank() const override { return roll_.rank(); }
  int world() const override { return static_cast<int>(roll_.peers().size()); }
  int node_of(int rank) const override { return roll_.peers()[static_cast<size_t>(rank)].node; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  c10d::ProcessGroupGloo& gloo_;
  const RollCall& roll_;
};

using Gloo = c10d::ProcessGroupGloo;

std::vector<at::Tensor> tensors_over(std::span<const std::byte> bytes) {
  return {
      at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, at::kByte)};
}

// Gloo's own calls, not those that override them: these messages are not watched one by one.
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

}  // namespace

using c10d::OpType;
using Gloo = c10d::ProcessGroupGloo;

namespace {

at::Tensor to_bytes(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  return bytes;
}

std::string text_in(const at::Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

// Its limit is ours to keep.
template <class CallOptions>
CallOptions patient(CallOptions options) {
  options.timeout = kNever;
  return options;
}

// gloo makes some collectives of others, which come back to us on the same thread: they have the outer one's
// limit.
class LimitOfCall {
 public:
  LimitOfCall(std::chrono::milliseconds asked, std::chrono::milliseconds otherwise) : before_(outer) {
    const bool none = asked == c10d::kUnsetTimeout || asked == kNever;
    limit_ = !none ? asked : before_ != kNever ? before_ : otherwise;
    outer = limit_;
  }
  ~LimitOfCall() { outer = before_; }
  LimitOfCall(const LimitOfCall&) = delete;
  LimitOfCall& operator=(const LimitOfCall&) = delete;
  std::chrono::milliseconds get() const { return limit_; }

 private:
  inline static thread_local std::chrono::milliseconds outer = kNever;  // kNever: this is the outermost
  std::chrono::milliseconds before_, limit_;
};

// What has none is made of collectives that came here one by one.
bool has_future(const c10d::Work* work) {
  if (const auto* watched = dynamic_cast<const WatchedWork*>(work)) return has_future(watched->inner());
  return dynamic_cast<const Gloo::AsyncWork*>(work) != nullptr;
}

// It is that of an all-reduce's own messages.
void require_free(int tag) {
  TORCH_CHECK(tag != kCollectiveTag, "the tag ", tag, " is one of lockstep's own: take another");
}

}  // namespace

WatchedGloo::WatchedGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                         c10::intrusive_ptr<Options> options, std::shared_ptr<RollCall> roll)
    : ProcessGroupGloo(store, rank, world, std::move(options)), roll_(std::move(roll)) {}

// before the sockets close: who sees them close can then tell a goodbye from a death
WatchedGloo::~WatchedGloo() {
  roll_->leave();
  if (!limits_) return;
  roll_->at_death([this] { limits_->cut_lines(); });  // too late to be left as it is
  limits_->drain();                                   // gloo's own end waits for whatever is under way
  roll_->at_death({});
}

void WatchedGloo::keep_time(std::chrono::milliseconds timeout, Connections lines) {
  options_->timeout = timeout;
  for (const auto& context : contexts_) context->setTimeout(kNever);
  limits_ = std::make_shared<TimeoutThread>(std::move(lines), roll_);
  roll_->at_death([this] {
    limits_->cut_lines();
    c10::raw::intrusive_ptr::incref(this);
  });
}

// The same small all-gather on every rank, whatever each then wants: so that what they want can be compared.
void WatchedGloo::compare_in(CollectiveWatch& watch, const Call& own, uint64_t number) {
  const auto gather = [&](const std::string& bytes) {
    Tensors mine = {to_bytes(bytes)};
    TensorLists all(1);
    for (int rank = 0; rank < getSize(); ++rank) all[0].push_back(at::empty_like(mine[0]));
    c10d::AllgatherOptions options;
    options.timeout = kNever;
    const auto work =
        Gloo::allgather(all, mine, options);  // not the base form, which comes back to this class
    wait_unless_given_up(*work, watch);
    std::vector<std::string> texts;
    for (const auto& theirs : all[0]) texts.push_back(text_in(theirs));
    return texts;
  };
  Difference found;
  try {
    found = difference(own, gather);
  } catch (const std::exception&) {
    watch.be_over();
    std::rethrow_exception(watch.diagnose(std::current_exception()));
  }
  if (found.empty()) return;
  watch.be_over();
  std::rethrow_exception(roll_->end_at(number, found));
}

void WatchedGloo::compare(const Call& own, const Collective& collective) {
  auto watch = std::make_shared<CollectiveWatch>(roll_, collective);
  limits_->add(watch);
  compare_in(*watch, own, collective.number);
  watch->be_over();
}

template <class Start>
WatchedGloo::WorkPtr WatchedGloo::watch(OpType type, const Tensors& tensors, const std::string& how,
                                        std::chrono::milliseconds timeout, Start&& start) {
  const LimitOfCall limit(timeout, options_->timeout);
  const Collective collective{op_name(type), roll_->begin(type), limit.get()};
  auto watch = std::make_shared<CollectiveWatch>(roll_, collective);
  limits_->add(watch);
  if (roll_->compares_calls()) compare_in(*watch, call_of(type, tensors, how), collective.number);
  try {
    auto work = start();
    tell_end(work, watch);
    return c10::make_intrusive<WatchedWork>(std::move(work), std::move(watch), limits_, getRank(), type);
  } catch (const std::exception&) {
    // refused for its arguments: it never began
    watch->be_over();
    roll_->take_back();
    throw;
  }
}

void WatchedGloo::tell_end(const WorkPtr& work, const std::shared_ptr<CollectiveWatch>& watch) {
  if (!has_future(work.get())) return watch->be_over();
  work->getFuture()->addCallback([watch](c10::ivalue::Future&) { watch->be_over(); });
}

std::exception_ptr WatchedGloo::carry(const Collective& collective,
                                      const std::function<void(Messenger&)>& body,
                                      const OnGivenUp& on_given_up) {
  auto watch = std::make_shared<CollectiveWatch>(roll_, collective);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { watch->be_over(); });
  try {
    limits_->add(watch);
    if (on_given_up) watch->when_given_up(on_given_up);
    GlooMessenger messenger(*this, *roll_);
    body(messenger);
    return nullptr;
  } catch (const std::exception&) {
    return watch->diagnose(std::current_exception());
  }
}

WatchedGloo::WorkPtr WatchedGloo::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return watch(OpType::BROADCAST, tensors, of_root(options.rootRank), options.timeout,
               [&] { return Gloo::broadcast(tensors, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return watch(OpType::ALLREDUCE, tensors, of_sum(options.reduceOp), options.timeout,
               [&] { return Gloo::allreduce(tensors, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return watch(OpType::_ALLREDUCE_SPARSE, tensors, of_sum(options.reduceOp), options.timeout,
               [&] { return Gloo::allreduce_sparse(tensors, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& options) {
  return watch(OpType::ALLREDUCE_COALESCED, tensors, of_sum(options.reduceOp), options.timeout,
               [&] { return Gloo::allreduce_coalesced(tensors, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return watch(OpType::REDUCE, tensors, of_sum(options.reduceOp) + of_root(options.rootRank), options.timeout,
               [&] { return Gloo::reduce(tensors, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::allgather(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  return watch(OpType::ALLGATHER, inputs, "", options.timeout,
               [&] { return Gloo::allgather(outputs, inputs, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  return watch(OpType::_ALLGATHER_BASE, {input}, "", options.timeout,
               [&] { return base::own_all_gather_single<Gloo>(*this, output, input, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  return watch(OpType::ALLGATHER_COALESCED, inputs, "", options.timeout,
               [&] { return Gloo::allgather_coalesced(outputs, inputs, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  return watch(OpType::ALLGATHER_COALESCED, inputs, "", options.timeout, [&] {
    return base::own_all_gather_single_coalesced<Gloo>(*this, outputs, inputs, patient(options));
  });
}

WatchedGloo::WorkPtr WatchedGloo::gather(TensorLists& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  return watch(OpType::GATHER, inputs, of_root(options.rootRank), options.timeout,
               [&] { return Gloo::gather(outputs, inputs, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ScatterOptions& options) {
  return watch(OpType::SCATTER, outputs, of_root(options.rootRank), options.timeout,
               [&] { return Gloo::scatter(outputs, inputs, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  return watch(OpType::REDUCE_SCATTER, outputs, of_sum(options.reduceOp), options.timeout,
               [&] { return Gloo::reduce_scatter(outputs, inputs, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  return watch(OpType::_REDUCE_SCATTER_BASE, {output}, of_sum(options.reduceOp), options.timeout,
               [&] { return base::own_reduce_scatter_single<Gloo>(*this, output, input, patient(options)); });
}

WatchedGloo::WorkPtr WatchedGloo::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::ReduceScatterOptions& options) {
  return watch(OpType::REDUCE_SCATTER, outputs, of_sum(options.reduceOp), options.timeout, [&] {
    return base::own_reduce_scatter_single_coalesced<Gloo>(*this, outputs, inputs, patient(options));
  });
}

WatchedGloo::WorkPtr WatchedGloo::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& output_counts,
                                                    std::vector<int64_t>& input_counts,
                                                    const c10d::AllToAllOptions& options) {
  return watch(OpType::ALLTOALL_BASE, {}, "", options.timeout, [&] {
    return base::own_all_to_all_single<Gloo>(*this, output, input, output_counts, input_counts,
                                             patient(options));
  });
}

// gloo has it since libtorch 2.12; before that it is refused as what no backend has
WatchedGloo::WorkPtr WatchedGloo::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& options) {
  return watch(OpType::ALLTOALL, {}, "", options.timeout,
               [&] { return Gloo::alltoall(outputs, inputs, patient(options)); });
}

// gloo has no line from a rank to itself, and looks for one without asking.
void WatchedGloo::require_other(int rank, const char* what) const {
  roll_->require_alive();
  require_rank(rank, getSize(), what);
  if (rank == getRank())
    throw InputError(std::string("gloo sends no message from a rank to itself: it cannot be ") + what, "",
                     "copy the tensor, or choose the backend mpi");
}

template <class Start>
WatchedGloo::WorkPtr WatchedGloo::watch_message(OpType type, int peer, Start&& start) {
  auto watch = std::make_shared<CollectiveWatch>(roll_, message_with(type, peer, options_->timeout));
  try {
    return c10::make_intrusive<WatchedWork>(start(), watch, limits_, getRank(), type);
  } catch (const c10::Error&) {
    throw;  // refused for its arguments
  } catch (const std::exception&) {
    std::rethrow_exception(watch->diagnose(std::current_exception()));
  }
}

WatchedGloo::WorkPtr WatchedGloo::send(Tensors& tensors, int to, int tag) {
  require_other(to, "the receiver of a message");
  require_free(tag);
  return watch_message(OpType::SEND, to, [&] { return Gloo::send(tensors, to, tag); });
}

WatchedGloo::WorkPtr WatchedGloo::recv(Tensors& tensors, int from, int tag) {
  require_other(from, "the sender of a message");
  require_free(tag);
  return watch_message(OpType::RECV, from, [&] { return Gloo::recv(tensors, from, tag); });
}

WatchedGloo::WorkPtr WatchedGloo::recvAnysource(Tensors& tensors, int tag) {
  roll_->require_alive();
  require_free(tag);
  return watch_message(OpType::RECVANYSOURCE, -1, [&] { return Gloo::recvAnysource(tensors, tag); });
}

WatchedGloo::WorkPtr WatchedGloo::barrier(const c10d::BarrierOptions& options) {
  return watch(OpType::BARRIER, {}, "", options.timeout, [&] { return Gloo::barrier(patient(options)); });
}

}  // namespace lockstep::comm
