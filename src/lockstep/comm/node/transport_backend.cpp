#include "lockstep/comm/node/transport_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/memory/node_blocks.h"
#include "lockstep/comm/node/transport.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/watched_work.h"

namespace lockstep::comm {

// How a collective of TransportBackend runs: in its call, or behind it; and what becomes of it.

// What a call is, apart from its tensors.
struct TransportBackend::Asked {
  c10d::OpType type;
  std::chrono::milliseconds timeout;
  int reduction = -1;
  int64_t root = -1;
};

struct TransportBackend::Beginning {
  c10d::OpType type;
  uint64_t number;
  std::chrono::milliseconds limit;
  Call call;  // where calls are compared
  CallWord word;

  /// As an error speaks of it.
  Collective collective() const { return {op_name(type), number, limit}; }
};

template <class Body>
std::exception_ptr TransportBackend::carry_out(const Beginning& beginning, const Body& body) {
  try {
    roll_->require_alive();  // it may have died while this one waited for its turn
    BoundedWait wait(*roll_, beginning.number, beginning.limit, transport_->crowded());
    if (roll_->compares_calls()) compare_in(wait, beginning.call, beginning.number);
    transport_->name_call(beginning.word);
    body(wait);
    return nullptr;
  } catch (const WaitExpired& reason) {
    return roll_->diagnose(beginning.collective(), reason.cause, reason.timed_out);
  } catch (const UnlikeCalls& unlike) {
    return roll_->end_at(beginning.number, difference_to(unlike, getRank(), beginning.word),
                         "compared before it ran");
  } catch (const Error&) {
    return std::current_exception();  // the roll's own
  } catch (const std::exception& error) {
    return roll_->diagnose(beginning.collective(), error.what(), false);  // others are in the middle of it
  }
}

// A call that would wait for another rank goes on, as with any backend of c10d: that rank may wait for what
// this one does next. What comes after it keeps its turn.
template <class Body>
TransportBackend::WorkPtr TransportBackend::run(const Asked& asked, const Tensors& tensors, Tensors results,
                                                Body body) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  const auto limit = asked.timeout == c10d::kUnsetTimeout ? options_->timeout : asked.timeout;
  number_ = roll_->begin(asked.type);
  Beginning beginning{asked.type, number_, limit, {}, word_for(asked, tensors)};
  if (roll_->compares_calls()) beginning.call = call_of(asked.type, tensors, how_of(asked));
  if (runs_ == Execution::in_the_call || is_soon_done()) {
    const auto error = carry_out(beginning, body);
    return c10::make_intrusive<FinishedWork>(getRank(), asked.type, number_, std::move(results), error);
  }
  auto work = c10::make_intrusive<QueuedWork>(getRank(), asked.type, number_, std::move(results));
  queue_.add(work, [this, beginning, body = std::move(body)] { return carry_out(beginning, body); });
  return work;
}

// Tensors whose memory moves into a block that the node's ranks share.

/// What the tensors' storages need side by side: the same on two ranks whose tensors are alike.
size_t block_bytes(const std::vector<at::Tensor>& tensors);

/// What the storages hold moves along, and so do all views of them. They keep the block alive.
void move_into(const std::shared_ptr<NodeBlock>& block, int local_rank,
               const std::vector<at::Tensor>& tensors);

namespace {

// Two cache lines: processors fetch them in pairs.
constexpr size_t kAlignment = 128;

size_t room_for(const at::Tensor& tensor) {
  return (tensor.storage().nbytes() + kAlignment - 1) / kAlignment * kAlignment;
}

void let_go(void* held) {
  delete static_cast<std::shared_ptr<NodeBlock>*>(held);
}

}  // namespace

size_t block_bytes(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += room_for(tensor);
  return bytes;
}

void move_into(const std::shared_ptr<NodeBlock>& block, int local_rank,
               const std::vector<at::Tensor>& tensors) {
  std::byte* place = block->piece(local_rank);
  for (const auto& tensor : tensors) {
    const auto& storage = tensor.storage();
    if (storage.nbytes() > 0) std::memcpy(place, storage.data(), storage.nbytes());
    storage.set_data_ptr({place, new std::shared_ptr<NodeBlock>(block), let_go, at::kCPU});
    place += room_for(tensor);
  }
}

// The collectives that move tensors from rank to rank, and add nothing.

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

// rows[r] rows for rank r, or from it; equal parts where `rows` is empty.
Tensors parts_of(const at::Tensor& whole, const std::vector<int64_t>& rows, int ranks) {
  TORCH_CHECK(whole.dim() > 0 && (!rows.empty() || whole.size(0) % ranks == 0),
              "the first dimension of a tensor of ", whole.sizes(), " is not ", ranks,
              " equal parts, one a rank");
  if (rows.empty()) return pieces_of(whole, ranks);
  TORCH_CHECK(whole.is_contiguous() && rows.size() == static_cast<size_t>(ranks) &&
                  std::accumulate(rows.begin(), rows.end(), int64_t{0}) == whole.size(0),
              "a tensor of ", whole.sizes(), " is not contiguous, or not ", c10::IntArrayRef(rows),
              " rows, for ", ranks, " ranks");
  return whole.split_with_sizes(rows);
}

// Outgoing or Incoming, for each rank but `own`; what a rank has for itself is copied there.
template <class Message>
std::vector<Message> messages_of(const std::vector<std::span<std::byte>>& parts, int own) {
  std::vector<Message> messages;
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (static_cast<int>(rank) != own) messages.push_back({static_cast<int>(rank), parts[rank]});
  return messages;
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

TransportBackend::WorkPtr TransportBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  if (is_for_base(inputs)) return ForwardingBackend::allgather(outputs, inputs, options);
  const at::Tensor& input = single(inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()), "an all-gather of ",
              getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& output : outputs[0]) require_alike(output, input);
  return run({OpType::ALLGATHER, options.timeout}, inputs, outputs[0],
             [this, input, results = outputs[0]](BoundedWait& wait) {
               const FlatTensor from(input);
               Flats into(results);
               transport_->all_gather(from.data(), from.bytes(), into.places(), wait);
               into.write_back();
             });
}

TransportBackend::WorkPtr TransportBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& options) {
  require_dense_cpu(input);
  const Tensors pieces = pieces_of(output, getSize());
  for (const auto& piece : pieces) require_alike(piece, input);
  return run({OpType::_ALLGATHER_BASE, options.timeout}, {input}, {output},
             [this, input, pieces](BoundedWait& wait) {
               const FlatTensor from(input);
               transport_->all_gather(from.data(), from.bytes(), Flats(pieces).places(), wait);
             });
}

TransportBackend::WorkPtr TransportBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  require_pairs(outputs, inputs);
  if (is_for_base({inputs[0]}))
    return ForwardingBackend::allgather_into_tensor_coalesced(outputs, inputs, options);
  TensorLists pieces;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require_dense_cpu(inputs[i]);
    pieces.push_back(pieces_of(outputs[i], getSize()));
    for (const auto& piece : pieces[i]) require_alike(piece, inputs[i]);
  }
  return run({OpType::ALLGATHER_COALESCED, options.timeout}, inputs, outputs,
             [this, given = inputs, pieces](BoundedWait& wait) {
               for (size_t i = 0; i < given.size(); ++i) {
                 const FlatTensor from(given[i]);
                 transport_->all_gather(from.data(), from.bytes(), Flats(pieces[i]).places(), wait);
               }
             });
}

// A list of one tensor a rank on the root, and none elsewhere.
TransportBackend::Tensors TransportBackend::list_of_root(const TensorLists& lists, int root,
                                                         const at::Tensor& like) const {
  if (getRank() != root) {
    TORCH_CHECK(lists.empty(), "only the root, rank ", root, ", has a list of tensors");
    return {};
  }
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(getSize()),
              "the root needs one list of ", getSize(), " tensors, one a rank");
  for (const auto& tensor : lists[0]) require_alike(tensor, like);
  return lists[0];
}

TransportBackend::WorkPtr TransportBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  if (is_for_base(inputs)) return ForwardingBackend::gather(outputs, inputs, options);
  const at::Tensor& input = single(inputs);
  require_rank(options.rootRank, getSize(), "the root of a gather");
  const int root = static_cast<int>(options.rootRank);
  const Tensors results = list_of_root(outputs, root, input);
  return run({OpType::GATHER, options.timeout, -1, root}, inputs, results,
             [this, input, results, root](BoundedWait& wait) {
               const FlatTensor from(input);
               Flats into(results);
               const auto places = into.spans();
               const Outgoing own{root, from.span()};
               if (getRank() == root) {
                 transport_->exchange({}, messages_of<Incoming>(places, root), from.bytes(), wait);
                 copy(from.span(), places[static_cast<size_t>(root)]);
               } else {
                 transport_->exchange({&own, 1}, {}, from.bytes(), wait);
               }
               into.write_back();
             });
}

TransportBackend::WorkPtr TransportBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& options) {
  if (is_for_base(outputs)) return ForwardingBackend::scatter(outputs, inputs, options);
  const at::Tensor& output = single(outputs);
  require_rank(options.rootRank, getSize(), "the root of a scatter");
  const int root = static_cast<int>(options.rootRank);
  return run({OpType::SCATTER, options.timeout, -1, root}, outputs, outputs,
             [this, output, given = list_of_root(inputs, root, output), root](BoundedWait& wait) {
               FlatTensor into(output);
               const Flats from(given);
               const auto places = from.spans();
               const Incoming own{root, into.span()};
               if (getRank() == root) {
                 transport_->exchange(messages_of<Outgoing>(places, root), {}, into.bytes(), wait);
                 copy(places[static_cast<size_t>(root)], into.span());
               } else {
                 transport_->exchange({}, {&own, 1}, into.bytes(), wait);
               }
               into.write_back();
             });
}

// What each rank has for another, that one has to expect. Returns the bytes of the longest message.
size_t TransportBackend::agree_on_sizes(at::ScalarType type, const Spans& out, const Spans& in,
                                        BoundedWait& wait) {
  const size_t ranks = out.size();
  std::vector<uint64_t> own = {static_cast<uint64_t>(type)};  // then what it sends, then what it expects
  for (const auto& part : out) own.push_back(part.size());
  for (const auto& part : in) own.push_back(part.size());
  std::vector<std::vector<uint64_t>> rows(ranks, std::vector<uint64_t>(own.size()));
  std::vector<std::byte*> places;
  for (auto& row : rows) places.push_back(reinterpret_cast<std::byte*>(row.data()));
  transport_->all_gather(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(uint64_t),
                         places, wait);
  const auto type_of = [&](size_t rank) { return c10::toString(static_cast<at::ScalarType>(rows[rank][0])); };
  size_t most = 0;
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const size_t sent = rows[from][1 + to], expected = rows[to][1 + ranks + from];
      if (sent != expected || rows[from][0] != rows[to][0])
        std::rethrow_exception(roll_->end_at(
            wait.collective(),
            {format(
                "the ranks' calls differ: rank {} sends {} bytes of {} to rank {}, which expects {} of {}",
                from, sent, type_of(from), to, expected, type_of(to))},
            "compared before it ran"));
      if (from != to) most = std::max(most, sent);
    }
  }
  return most;
}

// outputs[r] from rank r, inputs[r] for it.
TransportBackend::WorkPtr TransportBackend::exchange(std::chrono::milliseconds limit, Tensors results,
                                                     Tensors outputs, const Tensors& inputs) {
  const auto element = inputs[0].scalar_type();
  for (const auto* tensors : std::array<const Tensors*, 2>{&outputs, &inputs}) {
    for (const auto& tensor : *tensors) {
      require_dense_cpu(tensor);
      TORCH_CHECK(tensor.scalar_type() == element, "the tensors of an all-to-all differ: ", element, " and ",
                  tensor.scalar_type());
    }
  }
  return run({OpType::ALLTOALL_BASE, limit}, {}, std::move(results),
             [this, outputs = std::move(outputs), inputs, element](BoundedWait& wait) {
               const Flats from(inputs);
               Flats into(outputs);
               const auto out = from.spans(), in = into.spans();
               const size_t most = agree_on_sizes(element, out, in, wait);
               transport_->exchange(messages_of<Outgoing>(out, getRank()),
                                    messages_of<Incoming>(in, getRank()), most, wait);
               const auto own = static_cast<size_t>(getRank());
               copy(out[own], in[own]);
               into.write_back();
             });
}

TransportBackend::WorkPtr TransportBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_counts,
                                                          std::vector<int64_t>& input_counts,
                                                          const c10d::AllToAllOptions& options) {
  if (is_for_base({input}))
    return ForwardingBackend::alltoall_base(output, input, output_counts, input_counts, options);
  return exchange(options.timeout, {output}, parts_of(output, output_counts, getSize()),
                  parts_of(input, input_counts, getSize()));
}

TransportBackend::WorkPtr TransportBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks, "an all-to-all of ", ranks,
              " ranks needs a tensor for each and one from each");
  if (is_for_base({inputs[0]})) return ForwardingBackend::alltoall(outputs, inputs, options);
  return exchange(options.timeout, outputs, outputs, inputs);
}

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

// Stands under a transport that has all there is: what it is asked for, c10d refuses by its name.
class NoBackend : public c10d::Backend {
 public:
  NoBackend(int rank, int world, std::string name) : Backend(rank, world), name_(std::move(name)) {}
  const std::string getBackendName() const override { return name_; }

 private:
  std::string name_;
};

c10::intrusive_ptr<c10d::Backend> or_none(c10::intrusive_ptr<c10d::Backend> base, const RollCall& roll,
                                          const std::string& name) {
  if (base) return base;
  return c10::make_intrusive<NoBackend>(roll.rank(), static_cast<int>(roll.peers().size()), name);
}

int number_of(const c10d::ReduceOp& op) {
  return static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(op));
}

// Complex numbers are summed as twice as many real ones. They have no other reduction.
at::Tensor summed_as(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const bool sums = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
  return tensor.is_complex() && sums ? at::view_as_real(tensor) : tensor;
}

Tensors summed_as(Tensors tensors, const c10d::ReduceOp& op) {
  for (auto& tensor : tensors) tensor = summed_as(tensor, op);
  return tensors;
}

}  // namespace

CallWord TransportBackend::word_for(const Asked& asked, const Tensors& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  auto word = word_of(asked.type, asked.reduction, static_cast<int>(asked.root),
                      tensors.empty() ? at::kByte : tensors[0].scalar_type(), bytes);
  if (tensors.size() < 2) return word;
  for (const auto& tensor : tensors)
    word.parts =
        c10::hash_combine(word.parts, c10::get_hash(static_cast<int>(tensor.scalar_type()), tensor.nbytes()));
  return word;
}

std::string TransportBackend::how_of(const Asked& asked) {
  std::string how;
  if (asked.reduction >= 0) how += of_sum(static_cast<c10d::ReduceOp::RedOpType>(asked.reduction));
  if (asked.root >= 0) how += of_root(asked.root);
  return how;
}

TransportBackend::TransportBackend(const std::string& name, const c10::intrusive_ptr<c10d::Backend>& base,
                                   std::unique_ptr<Transport> transport, std::shared_ptr<RollCall> roll,
                                   std::chrono::milliseconds timeout, SumOrder order, Execution runs)
    : ForwardingBackend(roll->rank(), static_cast<int>(roll->peers().size()), or_none(base, *roll, name)),
      has_base_(base != nullptr),
      roll_(std::move(roll)),
      options_(c10::make_intrusive<Options>(name, timeout)),
      order_(order),
      runs_(runs),
      transport_(std::move(transport)) {}

TransportBackend::~TransportBackend() {
  roll_->leave();
}

void TransportBackend::require_dense_cpu(const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.device().is_cpu(), "the ", getBackendName(), " backend takes CPU tensors, not one on ",
              tensor.device());
  TORCH_CHECK(tensor.layout() == c10::kStrided, "the ", getBackendName(),
              " backend takes dense tensors, not ", tensor.layout());
}

at::Tensor& TransportBackend::single(Tensors& tensors) const {
  TORCH_CHECK(tensors.size() == 1, "the ", getBackendName(), " backend takes one tensor a rank, not ",
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

// Several tensors a rank, sparse ones and those of other devices are the base's business.
bool TransportBackend::is_for_base(const Tensors& tensors) const {
  if (!has_base_) return false;
  return tensors.size() != 1 || tensors[0].layout() != c10::kStrided || !tensors[0].device().is_cpu();
}

void TransportBackend::compare_in(BoundedWait& wait, const Call& own, uint64_t number) {
  transport_->name_call({});
  const auto differs = difference(own, [&](const std::string& bytes) {
    std::vector<std::string> all(static_cast<size_t>(getSize()), std::string(bytes.size(), '\0'));
    std::vector<std::byte*> places;
    for (auto& text : all) places.push_back(reinterpret_cast<std::byte*>(text.data()));
    transport_->all_gather(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), places, wait);
    return all;
  });
  if (!differs.empty()) std::rethrow_exception(roll_->end_at(number, differs));
}

void TransportBackend::compare_calls(const Call& own, const Collective& collective) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  try {
    BoundedWait wait(*roll_, collective.number, collective.timeout, transport_->crowded());
    compare_in(wait, own, collective.number);
  } catch (const WaitExpired& reason) {
    std::rethrow_exception(roll_->diagnose(collective, reason.cause, reason.timed_out));
  } catch (const UnlikeCalls&) {  // the other one is not comparing
    std::rethrow_exception(roll_->diagnose(collective, "another rank is in another call", false));
  }
}

bool TransportBackend::is_soon_done() {
  transport_->arrive();
  if (queue_.runs_here())
    queue_.run_waiting();  // a callback's own call: nobody else would end what is before it
  return queue_.runs_here() || (queue_.idle() && transport_->all_arrived());
}

void TransportBackend::share(const Tensors& tensors) {
  // sizes may differ: then nothing is shared
  const auto work = run({OpType::ALLGATHER, options_->timeout}, {}, {}, [this, tensors](BoundedWait& wait) {
    const auto block = transport_->take_block(block_bytes(tensors), wait);
    if (block) move_into(block, transport_->place(), tensors);
  });
  work->wait();
}

TransportBackend::WorkPtr TransportBackend::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::broadcast(tensors, options);
  const at::Tensor& tensor = single(tensors);
  require_rank(options.rootRank, getSize(), "the root of a broadcast");
  return run({OpType::BROADCAST, options.timeout, -1, options.rootRank}, tensors, tensors,
             [this, tensor, root = static_cast<int>(options.rootRank)](BoundedWait& wait) {
               FlatTensor flat(tensor);
               transport_->broadcast(flat.data(), flat.bytes(), root, wait);
               flat.write_back();
             });
}

// As gloo cuts the message of that operation.
ReductionOrder TransportBackend::fold_for(OpType type, size_t items, size_t item_bytes) const {
  const auto ranks = static_cast<size_t>(getSize());
  if (order_ == SumOrder::by_rank) return ReductionOrder::by_rank(ranks);
  const size_t chunk = type == OpType::REDUCE ? algorithms::gloo_reduce_chunk(items, item_bytes, getSize())
                                              : algorithms::gloo_chunk(items, item_bytes, getSize());
  return ReductionOrder::as_gloo(ranks, chunk * item_bytes);
}

void TransportBackend::reduce_all(at::Tensor tensor, const c10d::ReduceOp& op, OpType type, bool keep,
                                  BoundedWait& wait) {
  FlatTensor flat(tensor, ElementOrder::memory);
  const Reduction& reduction = find_reduction(tensor.scalar_type(), op, order_ == SumOrder::as_gloo);
  const ReductionOrder fold = fold_for(type, flat.items(), reduction.item_bytes);
  transport_->all_reduce(flat.data(), keep ? flat.data() : nullptr, flat.items(), reduction, fold, wait);
  if (!keep) return;
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

TransportBackend::WorkPtr TransportBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::allreduce(tensors, options);
  const auto tensor = summed_as(single(tensors), options.reduceOp);
  find_reduction(tensor.scalar_type(), options.reduceOp);
  return run({OpType::ALLREDUCE, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
             [this, tensor, op = options.reduceOp](BoundedWait& wait) {
               reduce_all(tensor, op, OpType::ALLREDUCE, true, wait);
             });
}

// As gloo does: one message of all of them, where they are of one type.
void TransportBackend::reduce_coalesced(Tensors tensors, const c10d::ReduceOp& op, BoundedWait& wait) {
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

TransportBackend::WorkPtr TransportBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  for (const auto& tensor : tensors) require_dense_cpu(tensor);
  const auto given = summed_as(tensors, options.reduceOp);
  for (const auto& tensor : given) find_reduction(tensor.scalar_type(), options.reduceOp);
  return run({OpType::ALLREDUCE_COALESCED, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
             [this, given, op = options.reduceOp](BoundedWait& wait) { reduce_coalesced(given, op, wait); });
}

TransportBackend::WorkPtr TransportBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::reduce(tensors, options);
  const auto tensor = summed_as(single(tensors), options.reduceOp);
  require_rank(options.rootRank, getSize(), "the root of a reduce");
  find_reduction(tensor.scalar_type(), options.reduceOp);
  const bool keep = getRank() == options.rootRank;
  return run({OpType::REDUCE, options.timeout, number_of(options.reduceOp), options.rootRank}, tensors,
             tensors, [this, tensor, keep, op = options.reduceOp](BoundedWait& wait) {
               reduce_all(tensor, op, OpType::REDUCE, keep, wait);
             });
}

// gloo sums all of a list's parts as messages of their own, and those of one tensor as one message.
void TransportBackend::scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one,
                                   const c10d::ReduceOp& op, BoundedWait& wait) {
  // a dense part that is not row-major is summed in memory order
  const auto& own = inputs[static_cast<size_t>(getRank())];
  const bool permuted = !own.is_contiguous() && own.is_non_overlapping_and_dense();
  const auto sum = permuted ? at::empty_like(own) : output;
  FlatTensor flat(sum, permuted ? ElementOrder::memory : ElementOrder::logical);
  const Reduction& reduction = find_reduction(output.scalar_type(), op, order_ == SumOrder::as_gloo);
  const size_t message = flat.items() * (in_one ? inputs.size() : 1);
  const ReductionOrder fold = fold_for(OpType::REDUCE_SCATTER, message, reduction.item_bytes);
  const Flats given(inputs, ElementOrder::memory);
  const auto places = given.places();
  transport_->reduce_scatter({places.begin(), places.end()}, flat.data(), flat.items(), reduction, fold,
                             in_one ? static_cast<size_t>(getRank()) * flat.bytes() : 0, wait);
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
  const at::NoGradGuard no_grad;
  if (permuted) output.copy_(sum);
}

TransportBackend::WorkPtr TransportBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
  if (is_for_base(outputs)) return ForwardingBackend::reduce_scatter(outputs, inputs, options);
  const auto output = summed_as(single(outputs), options.reduceOp);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
              "a reduce-scatter of ", getSize(), " ranks needs one list of ", getSize(), " tensors");
  const auto given = summed_as(inputs[0], options.reduceOp);
  for (const auto& input : given) require_alike(input, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run({OpType::REDUCE_SCATTER, options.timeout, number_of(options.reduceOp)}, outputs, outputs,
             [this, output, given, op = options.reduceOp](BoundedWait& wait) {
               scatter_sum(output, given, false, op, wait);
             });
}

TransportBackend::WorkPtr TransportBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  require_dense_cpu(output);
  const auto sum = summed_as(output, options.reduceOp);
  const Tensors pieces = pieces_of(summed_as(input, options.reduceOp), getSize());
  for (const auto& piece : pieces) require_alike(piece, sum);
  find_reduction(sum.scalar_type(), options.reduceOp);
  return run({OpType::_REDUCE_SCATTER_BASE, options.timeout, number_of(options.reduceOp)}, {output}, {output},
             [this, sum, pieces, op = options.reduceOp](BoundedWait& wait) {
               scatter_sum(sum, pieces, true, op, wait);
             });
}

TransportBackend::WorkPtr TransportBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  require_pairs(outputs, inputs);
  if (is_for_base({outputs[0]}))
    return ForwardingBackend::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  const auto sums = summed_as(outputs, options.reduceOp), given = summed_as(inputs, options.reduceOp);
  TensorLists pieces;
  for (size_t i = 0; i < given.size(); ++i) {
    require_dense_cpu(sums[i]);
    pieces.push_back(pieces_of(given[i], getSize()));
    for (const auto& piece : pieces[i]) require_alike(piece, sums[i]);
    find_reduction(sums[i].scalar_type(), options.reduceOp);
  }
  return run({OpType::_REDUCE_SCATTER_BASE, options.timeout, number_of(options.reduceOp)}, outputs, outputs,
             [this, sums, pieces, op = options.reduceOp](BoundedWait& wait) {
               for (size_t i = 0; i < sums.size(); ++i) scatter_sum(sums[i], pieces[i], true, op, wait);
             });
}

TransportBackend::WorkPtr TransportBackend::barrier(const c10d::BarrierOptions& options) {
  // gloo's waits for all that this rank has begun there, and so does one over it
  if (has_base_ && has_forwarded()) ForwardingBackend::barrier(options)->wait();
  return run({OpType::BARRIER, options.timeout}, {}, {},
             [this](BoundedWait& wait) { transport_->barrier(wait); });
}

}  // namespace lockstep::comm
