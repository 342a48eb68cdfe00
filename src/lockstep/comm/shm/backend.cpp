#include "lockstep/comm/shm/backend.h"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using RedOpType = c10d::ReduceOp::RedOpType;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Spans = std::vector<std::span<std::byte>>;

/// The order of a tensor's elements. gloo sums a tensor without gaps in memory order.
enum class ElementOrder { logical, memory };

/// A tensor as contiguous memory; write_back() copies it back if it had to be copied.
class FlatTensor {
 public:
  explicit FlatTensor(const at::Tensor& tensor, ElementOrder order = ElementOrder::logical)
      : tensor_(tensor) {
    const bool as_it_lies = order == ElementOrder::memory && tensor.is_non_overlapping_and_dense();
    flat_ = as_it_lies ? tensor : tensor.contiguous();
  }
  std::byte* data() const { return static_cast<std::byte*>(flat_.data_ptr()); }
  size_t bytes() const { return flat_.nbytes(); }
  std::span<std::byte> span() const { return {data(), bytes()}; }
  size_t items() const { return static_cast<size_t>(flat_.numel()); }
  void write_back() {
    if (flat_.is_same(tensor_)) return;
    const at::NoGradGuard no_grad;  // it may be a parameter
    tensor_.copy_(flat_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor flat_;
};

/// One for each rank.
class FlatTensors {
 public:
  explicit FlatTensors(const Tensors& tensors, ElementOrder order = ElementOrder::logical) {
    for (const auto& tensor : tensors) flats_.emplace_back(tensor, order);
  }
  std::vector<std::byte*> places() const {
    std::vector<std::byte*> places;
    for (const auto& flat : flats_) places.push_back(flat.data());
    return places;
  }
  Spans spans() const {
    Spans spans;
    for (const auto& flat : flats_) spans.push_back(flat.span());
    return spans;
  }
  void write_back() {
    for (auto& flat : flats_) flat.write_back();
  }

 private:
  std::vector<FlatTensor> flats_;
};

bool takes_one_tensor(OpType type) {
  constexpr std::array kTypes = {OpType::BROADCAST,     OpType::ALLREDUCE, OpType::REDUCE,
                                 OpType::ALLGATHER,     OpType::GATHER,    OpType::SCATTER,
                                 OpType::REDUCE_SCATTER};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

// A contiguous tensor in equal parts, one for each rank.
Tensors pieces_of(const at::Tensor& whole, int count) {
  TORCH_CHECK(whole.is_contiguous() && whole.numel() % count == 0, "a tensor of ", whole.sizes(),
              " is not contiguous, or not ", count, " equal pieces");
  return whole.view({-1}).chunk(count);
}

TensorLists pieces_of(const Tensors& wholes, int count) {
  TensorLists pieces;
  for (const auto& whole : wholes) pieces.push_back(pieces_of(whole, count));
  return pieces;
}

// rows[r] rows for or from rank r; equal parts if `rows` is empty.
Tensors parts_of(const at::Tensor& whole, const std::vector<int64_t>& rows, int ranks) {
  TORCH_CHECK(whole.dim() > 0 && (!rows.empty() || whole.size(0) % ranks == 0),
              "the first dimension of a tensor of ", whole.sizes(), " is not ", ranks,
              " equal parts, one per rank");
  if (rows.empty()) return pieces_of(whole, ranks);
  TORCH_CHECK(whole.is_contiguous() && rows.size() == static_cast<size_t>(ranks) &&
                  std::accumulate(rows.begin(), rows.end(), int64_t{0}) == whole.size(0),
              "a tensor of ", whole.sizes(), " is not contiguous, or not ", c10::IntArrayRef(rows),
              " rows, for ", ranks, " ranks");
  return whole.split_with_sizes(rows);
}

void require_pairs(const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(), "a collective of several tensors needs as ",
              "many inputs as outputs, and at least one: not ", inputs.size(), " and ", outputs.size());
}

// A sum of complex numbers is a sum of twice as many real numbers. Other reductions are not defined.
at::Tensor summed_as(const at::Tensor& tensor, RedOpType op) {
  return tensor.is_complex() && op == c10d::ReduceOp::SUM ? at::view_as_real(tensor) : tensor;
}

Tensors summed_as(Tensors tensors, RedOpType op) {
  for (auto& tensor : tensors) tensor = summed_as(tensor, op);
  return tensors;
}

// Outgoing or Incoming, for each rank but `own`.
template <class Message>
std::vector<Message> messages_of(const Spans& parts, int own) {
  std::vector<Message> messages;
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (static_cast<int>(rank) != own) messages.push_back({static_cast<int>(rank), parts[rank]});
  return messages;
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

CallWord word_for(const BackendCall& call, const Tensors& alike) {
  CallWord word{.type = call.type, .root = static_cast<int32_t>(call.root)};
  if (call.reduction) word.reduction = static_cast<int8_t>(*call.reduction);
  if (!alike.empty()) word.scalar = alike[0].scalar_type();
  for (const auto& tensor : alike) {
    word.bytes += tensor.nbytes();
    if (alike.size() > 1)
      word.parts = c10::hash_combine(word.parts,
                                     c10::get_hash(static_cast<int>(tensor.scalar_type()), tensor.nbytes()));
  }
  return word;
}

TransportBackend::TransportBackend(const std::string& name, BackendPtr inner,
                                   std::unique_ptr<Transport> transport, std::shared_ptr<PeerMonitor> monitor,
                                   std::chrono::milliseconds timeout, SumOrder order, Execution runs)
    : InterceptedBackend(std::move(inner), monitor->rank(), static_cast<int>(monitor->peers().size())),
      monitor_(std::move(monitor)),
      options_(c10::make_intrusive<Options>(name, timeout)),
      order_(order),
      runs_(runs),
      transport_(std::move(transport)) {}

TransportBackend::~TransportBackend() {
  monitor_->leave();
}

void TransportBackend::require_dense_cpu(const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.device().is_cpu(), "the ", getBackendName(), " backend takes CPU tensors, not one on ",
              tensor.device());
  TORCH_CHECK(tensor.layout() == c10::kStrided, "the ", getBackendName(),
              " backend takes dense tensors, not ", tensor.layout());
}

const at::Tensor& TransportBackend::single(const Tensors& tensors) const {
  TORCH_CHECK(tensors.size() == 1, "the ", getBackendName(), " backend takes one tensor per rank, not ",
              tensors.size());
  require_dense_cpu(tensors[0]);
  return tensors[0];
}

void TransportBackend::require_alike(const at::Tensor& tensor, const at::Tensor& like) const {
  require_dense_cpu(tensor);
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
              "the tensors of a collective differ: ", tensor.scalar_type(), " of ", tensor.sizes(), " and ",
              like.scalar_type(), " of ", like.sizes());
}

void TransportBackend::require_one_a_rank(const Tensors& tensors, const at::Tensor& like) const {
  TORCH_CHECK(tensors.size() == static_cast<size_t>(getSize()), "a collective of ", getSize(),
              " ranks needs one list of ", getSize(), " tensors, one per rank, not ", tensors.size());
  for (const auto& tensor : tensors) require_alike(tensor, like);
}

// Messages, sparse tensors, tensors on other devices, and several tensors per rank where one is usual.
bool TransportBackend::is_for_inner(const BackendCall& call, const Tensors& outputs,
                                    const Tensors& inputs) const {
  if (call.is_message() || call.lists || call.type == OpType::_ALLREDUCE_SPARSE) return true;
  const auto& alike = tensors_alike(call, outputs, inputs);
  const auto& own = alike.empty() ? inputs : alike;
  if (!inner() || own.empty()) return false;
  const bool is_dense_cpu = own[0].layout() == c10::kStrided && own[0].device().is_cpu();
  return !is_dense_cpu || (takes_one_tensor(call.type) && own.size() != 1);
}

TransportBackend::WorkPtr TransportBackend::around(const BackendCall& call, Tensors& outputs, Tensors& inputs,
                                                   InnerCall inner) {
  if (call.type == OpType::BARRIER) {
    // gloo's barrier waits for all calls that this rank has begun there
    if (inner_is_busy_.exchange(false)) inner(outputs, inputs, call.timeout)->wait();
  } else if (is_for_inner(call, outputs, inputs)) {
    if (this->inner() && !call.is_message()) inner_is_busy_ = true;
    return inner(outputs, inputs, call.timeout);
  }
  return run(call, tensors_alike(call, outputs, inputs), outputs, body_of(call, outputs, inputs));
}

struct TransportBackend::StartedCall {
  OpType type;
  uint64_t number;
  std::chrono::milliseconds limit;
  Call call;  // where calls are compared
  CallWord word;

  /// As errors describe it.
  Collective collective() const { return {op_name(type), number, limit}; }
};

std::exception_ptr TransportBackend::carry_out(const StartedCall& started, const Body& body) {
  try {
    monitor_->require_alive();  // the group may have died while this call was queued
    BoundedWait wait(*monitor_, started.number, started.limit, transport_->node().crowded());
    if (monitor_->compares_calls()) compare_in(wait, started.call, started.number);
    transport_->node().segment().name_call(started.word);
    body(wait);
    return nullptr;
  } catch (const WaitExpired& reason) {
    return monitor_->diagnose(started.collective(), reason.cause, reason.timed_out);
  } catch (const CallMismatch& mismatch) {
    return monitor_->end_at(started.number, difference_to(mismatch, getRank(), started.word));
  } catch (const Error&) {
    return std::current_exception();  // the monitor's
  } catch (const std::exception& error) {
    return monitor_->diagnose(started.collective(), error.what(),
                              false);  // other ranks are in the middle of it
  }
}

// Does not wait in the call for a late rank, because that rank may wait for this rank's next action. Later
// calls keep their order.
TransportBackend::WorkPtr TransportBackend::run(const BackendCall& call, const Tensors& alike,
                                                Tensors results, Body body) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  const auto limit = call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  number_ = monitor_->begin(call.type);
  StartedCall started{call.type, number_, limit, {}, word_for(call, alike)};
  if (monitor_->compares_calls()) started.call = call_of(call.type, alike, details_of(call));
  if (runs_ == Execution::in_the_call || is_soon_done()) {
    const auto error = carry_out(started, body);
    return c10::make_intrusive<FinishedWork>(getRank(), call.type, number_, std::move(results), error);
  }
  auto work = c10::make_intrusive<QueuedWork>(getRank(), call.type, number_, std::move(results));
  queue_.add(work, [this, started, body = std::move(body)] { return carry_out(started, body); });
  return work;
}

bool TransportBackend::is_soon_done() {
  auto& segment = transport_->node().segment();
  segment.arrive();
  if (queue_.runs_here())
    queue_.run_waiting();  // called by a callback: no other thread would run the calls before it
  return queue_.runs_here() || (queue_.idle() && segment.all_arrived());
}

void TransportBackend::compare_in(BoundedWait& wait, const Call& own, uint64_t number) {
  transport_->node().segment().name_call({});
  const auto differs = difference(own, [&](const std::string& bytes) {
    std::vector<std::string> all(static_cast<size_t>(getSize()), std::string(bytes.size(), '\0'));
    std::vector<std::byte*> places;
    for (auto& text : all) places.push_back(reinterpret_cast<std::byte*>(text.data()));
    transport_->all_gather(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), places, wait);
    return all;
  });
  if (!differs.empty()) std::rethrow_exception(monitor_->end_at(number, differs));
}

void TransportBackend::compare_calls(const Call& own, const Collective& collective) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  try {
    BoundedWait wait(*monitor_, collective.number, collective.timeout, transport_->node().crowded());
    compare_in(wait, own, collective.number);
  } catch (const WaitExpired& reason) {
    std::rethrow_exception(monitor_->diagnose(collective, reason.cause, reason.timed_out));
  } catch (const CallMismatch&) {  // the other rank is not comparing
    std::rethrow_exception(monitor_->diagnose(collective, "a rank called another collective", false));
  }
}

namespace {

// Two cache lines: processors fetch them in pairs.
constexpr size_t kAlignment = 128;

size_t room_for(const at::Tensor& tensor) {
  return (tensor.storage().nbytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// Moves the storages, and with them all views.
void move_into(const std::shared_ptr<shm::Block>& block, int local_rank, const Tensors& tensors) {
  std::byte* place = block->piece(local_rank);
  for (const auto& tensor : tensors) {
    const auto& storage = tensor.storage();
    if (storage.nbytes() > 0) std::memcpy(place, storage.data(), storage.nbytes());
    const auto release = [](void* held) { delete static_cast<std::shared_ptr<shm::Block>*>(held); };
    storage.set_data_ptr({place, new std::shared_ptr<shm::Block>(block), release, at::kCPU});
    place += room_for(tensor);
  }
}

}  // namespace

void TransportBackend::share(const Tensors& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += room_for(tensor);
  // if the sizes differ, nothing is shared
  const auto work = run({OpType::ALLGATHER, options_->timeout}, {}, {}, [this, tensors, bytes](auto& wait) {
    auto& node = transport_->node();
    if (const auto block = node.take_block(bytes, wait)) move_into(block, node.place(), tensors);
  });
  work->wait();
}

TransportBackend::Body TransportBackend::body_of(const BackendCall& call, const Tensors& outputs,
                                                 const Tensors& inputs) {
  if (call.reduction == c10d::ReduceOp::AVG && !outputs.empty() && outputs[0].is_complex()) {
    auto sum = call;  // then a division of complex numbers, which rounds differently
    sum.reduction = c10d::ReduceOp::SUM;
    return [this, body = body_of(sum, outputs, inputs), outputs, root = call.root](BoundedWait& wait) {
      body(wait);
      const at::NoGradGuard no_grad;
      if (root < 0 || root == getRank())
        for (const auto& output : outputs) output.div_(getSize());
    };
  }
  switch (call.type) {
    case OpType::BARRIER:
      return [this](BoundedWait& wait) { transport_->barrier(wait); };
    case OpType::BROADCAST:
      require_rank(call.root, getSize(), "the root of a broadcast");
      return [this, tensor = single(outputs), root = static_cast<int>(call.root)](BoundedWait& wait) {
        FlatTensor flat(tensor);
        transport_->broadcast(flat.data(), flat.bytes(), root, wait);
        flat.write_back();
      };
    case OpType::ALLREDUCE:
    case OpType::REDUCE: {
      const auto op = *call.reduction;
      const auto tensor = summed_as(single(outputs), op);
      if (call.type == OpType::REDUCE) require_rank(call.root, getSize(), "the root of a reduce");
      find_reduction(tensor.scalar_type(), op);
      const bool keep = call.type == OpType::ALLREDUCE || getRank() == call.root;
      return [this, tensor, op, type = call.type, keep](BoundedWait& wait) {
        reduce_all(tensor, op, type, keep, wait);
      };
    }
    case OpType::ALLREDUCE_COALESCED: {
      for (const auto& tensor : outputs) require_dense_cpu(tensor);
      const auto tensors = summed_as(outputs, *call.reduction);
      for (const auto& tensor : tensors) find_reduction(tensor.scalar_type(), *call.reduction);
      return
          [this, tensors, op = *call.reduction](BoundedWait& wait) { reduce_coalesced(tensors, op, wait); };
    }
    case OpType::ALLGATHER:
      single(inputs);
      return all_gather_body(inputs, {outputs});
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
      require_pairs(outputs, inputs);
      return all_gather_body(inputs, pieces_of(outputs, getSize()));
    case OpType::REDUCE_SCATTER:
      single(outputs);
      return scatter_sum_body(outputs, {inputs}, false, *call.reduction);
    case OpType::_REDUCE_SCATTER_BASE:
      require_pairs(outputs, inputs);
      return scatter_sum_body(outputs, pieces_of(summed_as(inputs, *call.reduction), getSize()), true,
                              *call.reduction);
    case OpType::GATHER:
    case OpType::SCATTER:
      return gather_body(call, outputs, inputs);
    default:
      return exchange_body(call, outputs, inputs);
  }
}

// gloo's order for this operation.
ReductionOrder TransportBackend::order_for(OpType type, size_t items, size_t item_bytes) const {
  const auto ranks = static_cast<size_t>(getSize());
  if (order_ == SumOrder::by_rank) return ReductionOrder::by_rank(ranks);
  const size_t chunk = type == OpType::REDUCE ? algorithms::gloo_reduce_chunk(items, item_bytes, getSize())
                                              : algorithms::gloo_chunk(items, item_bytes, getSize());
  return ReductionOrder::as_gloo(ranks, chunk * item_bytes);
}

void TransportBackend::reduce_all(at::Tensor tensor, RedOpType op, OpType type, bool keep,
                                  BoundedWait& wait) {
  FlatTensor flat(tensor, ElementOrder::memory);
  const Reduction reduction = find_reduction(tensor.scalar_type(), op, order_ == SumOrder::as_gloo);
  const ReductionOrder order = order_for(type, flat.items(), reduction.item_bytes);
  transport_->all_reduce(flat.data(), keep ? flat.data() : nullptr, flat.items(), reduction, order, wait);
  if (!keep) return;
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

// As gloo: one message for all tensors if they have one type.
void TransportBackend::reduce_coalesced(Tensors tensors, RedOpType op, BoundedWait& wait) {
  const auto alike = [&](const at::Tensor& one) { return one.scalar_type() == tensors[0].scalar_type(); };
  if (tensors.empty() || order_ == SumOrder::by_rank || !std::all_of(tensors.begin(), tensors.end(), alike)) {
    for (auto& tensor : tensors) reduce_all(tensor, op, OpType::ALLREDUCE_COALESCED, true, wait);
    return;
  }
  const at::NoGradGuard no_grad;
  Tensors flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  const auto all = at::cat(flat);
  reduce_all(all, op, OpType::ALLREDUCE_COALESCED, true, wait);
  int64_t at = 0;
  for (auto& tensor : tensors) {
    tensor.copy_(all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

TransportBackend::Body TransportBackend::scatter_sum_body(const Tensors& outputs, const TensorLists& inputs,
                                                          bool in_one, RedOpType op) {
  const auto sums = summed_as(outputs, op);
  TensorLists parts;
  for (size_t i = 0; i < sums.size(); ++i) {
    require_dense_cpu(sums[i]);
    parts.push_back(summed_as(inputs[i], op));
    require_one_a_rank(parts[i], sums[i]);
    find_reduction(sums[i].scalar_type(), op);
  }
  return [this, sums, parts, in_one, op](BoundedWait& wait) {
    for (size_t i = 0; i < sums.size(); ++i) scatter_sum(sums[i], parts[i], in_one, op, wait);
  };
}

// gloo sums the parts of a list as separate messages, and the parts of one tensor as one message.
void TransportBackend::scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one, RedOpType op,
                                   BoundedWait& wait) {
  // gloo sums a dense part that is not row-major in memory order
  const auto& own = inputs[static_cast<size_t>(getRank())];
  const bool permuted = !own.is_contiguous() && own.is_non_overlapping_and_dense();
  const auto sum = permuted ? at::empty_like(own) : output;
  FlatTensor flat(sum, permuted ? ElementOrder::memory : ElementOrder::logical);
  const Reduction reduction = find_reduction(output.scalar_type(), op, order_ == SumOrder::as_gloo);
  const size_t message = flat.items() * (in_one ? inputs.size() : 1);
  const ReductionOrder order = order_for(OpType::REDUCE_SCATTER, message, reduction.item_bytes);
  const FlatTensors given(inputs, ElementOrder::memory);
  const auto places = given.places();
  transport_->reduce_scatter({places.begin(), places.end()}, flat.data(), flat.items(), reduction, order,
                             in_one ? static_cast<size_t>(getRank()) * flat.bytes() : 0, wait);
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
  const at::NoGradGuard no_grad;
  if (permuted) output.copy_(sum);
}

TransportBackend::Body TransportBackend::all_gather_body(const Tensors& inputs, const TensorLists& outputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    require_dense_cpu(inputs[i]);
    require_one_a_rank(outputs[i], inputs[i]);
  }
  return [this, inputs, outputs](BoundedWait& wait) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const FlatTensor from(inputs[i]);
      FlatTensors into(outputs[i]);
      transport_->all_gather(from.data(), from.bytes(), into.places(), wait);
      into.write_back();
    }
  };
}

// A gather to the root, or a scatter from it.
TransportBackend::Body TransportBackend::gather_body(const BackendCall& call, const Tensors& outputs,
                                                     const Tensors& inputs) {
  const bool gathers = call.type == OpType::GATHER;
  require_rank(call.root, getSize(), gathers ? "the root of a gather" : "the root of a scatter");
  const int root = static_cast<int>(call.root);
  const at::Tensor& own = single(gathers ? inputs : outputs);
  const Tensors& list = gathers ? outputs : inputs;
  if (getRank() == root) {
    require_one_a_rank(list, own);
  } else {
    TORCH_CHECK(list.empty(), "only the root, rank ", root, ", has a list of tensors");
  }
  return [this, own, list, root, gathers](BoundedWait& wait) {
    FlatTensor mine(own);
    FlatTensors all(list);
    const auto places = all.spans();
    const size_t bytes = mine.bytes();
    if (getRank() != root) {
      const Outgoing out{root, mine.span()};
      const Incoming in{root, mine.span()};
      gathers ? transport_->exchange({&out, 1}, {}, bytes, wait)
              : transport_->exchange({}, {&in, 1}, bytes, wait);
    } else if (gathers) {
      transport_->exchange({}, messages_of<Incoming>(places, root), bytes, wait);
      copy(mine.span(), places[static_cast<size_t>(root)]);
    } else {
      transport_->exchange(messages_of<Outgoing>(places, root), {}, bytes, wait);
      copy(places[static_cast<size_t>(root)], mine.span());
    }
    gathers ? all.write_back() : mine.write_back();
  };
}

namespace {

// Checks that each rank expects what the others send to it. A row has a rank's type, the bytes that it sends
// to each rank and those that it expects. Sets the bytes of the longest message, or returns what differs.
std::string compare_sizes(const std::vector<std::vector<uint64_t>>& rows, size_t& most) {
  const size_t ranks = rows.size();
  const auto type_of = [&](size_t rank) { return c10::toString(static_cast<at::ScalarType>(rows[rank][0])); };
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const size_t sent = rows[from][1 + to], expected = rows[to][1 + ranks + from];
      if (sent != expected || rows[from][0] != rows[to][0])
        return format(
            "the ranks' calls differ: rank {} sends {} bytes of {} to rank {}, which expects {} of {}", from,
            sent, type_of(from), to, expected, type_of(to));
      if (from != to) most = std::max(most, sent);
    }
  }
  return "";
}

}  // namespace

// An all-to-all: outputs[r] from rank r, inputs[r] for it.
TransportBackend::Body TransportBackend::exchange_body(const BackendCall& call, const Tensors& outputs,
                                                       const Tensors& inputs) {
  const bool of_rows = call.type == OpType::ALLTOALL_BASE;
  const Tensors into = of_rows ? parts_of(outputs[0], *call.output_rows, getSize()) : outputs;
  const Tensors from = of_rows ? parts_of(inputs[0], *call.input_rows, getSize()) : inputs;
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK(from.size() == ranks && into.size() == ranks, "an all-to-all of ", ranks,
              " ranks needs a tensor for each and one from each");
  const auto element = from[0].scalar_type();
  for (const auto* tensors : {&into, &from}) {
    for (const auto& tensor : *tensors) {
      require_dense_cpu(tensor);
      TORCH_CHECK(tensor.scalar_type() == element, "the tensors of an all-to-all differ: ", element, " and ",
                  tensor.scalar_type());
    }
  }
  return [this, into, from, element](BoundedWait& wait) {
    const FlatTensors given(from);
    FlatTensors taken(into);
    const auto out = given.spans(), in = taken.spans();
    std::vector<uint64_t> own = {static_cast<uint64_t>(element)};
    for (const auto* parts : {&out, &in})
      for (const auto& part : *parts) own.push_back(part.size());
    std::vector<std::vector<uint64_t>> rows(out.size(), std::vector<uint64_t>(own.size()));
    std::vector<std::byte*> places;
    for (auto& row : rows) places.push_back(reinterpret_cast<std::byte*>(row.data()));
    transport_->all_gather(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(uint64_t),
                           places, wait);
    size_t most = 0;
    const auto differs = compare_sizes(rows, most);
    if (!differs.empty()) std::rethrow_exception(monitor_->end_at(wait.collective(), {differs}));
    transport_->exchange(messages_of<Outgoing>(out, getRank()), messages_of<Incoming>(in, getRank()), most,
                         wait);
    copy(out[static_cast<size_t>(getRank())], in[static_cast<size_t>(getRank())]);
    taken.write_back();
  };
}

}  // namespace lockstep::comm
