#include "lockstep/comm/node/inline_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/node/block_tensors.h"
#include "lockstep/comm/watch/finished_work.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// A tensor seen as contiguous memory; written back to where it came from if that was not contiguous.
class Flat {
 public:
  explicit Flat(const at::Tensor& tensor) : tensor_(tensor), flat_(tensor.contiguous()) {}
  std::byte* data() const { return data_of(flat_); }
  size_t bytes() const { return flat_.nbytes(); }
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

Tensors pieces_of(const at::Tensor& whole, int count) {
  TORCH_CHECK(whole.is_contiguous() && whole.numel() % count == 0, "a tensor of ", whole.sizes(),
              " is not a contiguous row of ", count, " equal pieces");
  return whole.view({-1}).chunk(count);
}

int number_of(const c10d::ReduceOp& op) {
  return static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(op));
}

std::vector<std::byte*> places_of(const Tensors& tensors) {
  std::vector<std::byte*> places;
  for (const auto& tensor : tensors) places.push_back(data_of(tensor));
  return places;
}

}  // namespace

// What a call is, apart from its tensors.
struct InlineBackend::Asked {
  OpType type;
  std::chrono::milliseconds timeout;
  int reduction = -1;
  int64_t root = -1;
};

struct InlineBackend::Beginning {
  OpType type;
  uint64_t number;
  std::chrono::milliseconds limit;
  Call call;  // where calls are compared
  CallWord word;

  /// As an error speaks of it.
  Collective collective() const { return {op_name(type), number, limit}; }
};

CallWord InlineBackend::word_for(const Asked& asked, const Tensors& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  return word_of(asked.type, asked.reduction, static_cast<int>(asked.root),
                 tensors.empty() ? at::kByte : tensors[0].scalar_type(), bytes);
}

std::string InlineBackend::how_of(const Asked& asked) {
  std::string how;
  if (asked.reduction >= 0) how += of_sum(static_cast<c10d::ReduceOp::RedOpType>(asked.reduction));
  if (asked.root >= 0) how += of_root(asked.root);
  return how;
}

InlineBackend::InlineBackend(const std::string& name, c10::intrusive_ptr<c10d::Backend> base,
                             std::unique_ptr<Transport> transport, std::shared_ptr<RollCall> roll,
                             std::chrono::milliseconds timeout, SumOrder order, Runs runs)
    : ForwardingBackend(roll->rank(), static_cast<int>(roll->peers().size()), std::move(base)),
      roll_(std::move(roll)),
      options_(c10::make_intrusive<Options>(name, timeout)),
      order_(order),
      runs_(runs),
      transport_(std::move(transport)) {}

InlineBackend::~InlineBackend() {
  roll_->leave();
}

void InlineBackend::require_dense_cpu(const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.device().is_cpu(), "the ", getBackendName(), " backend takes CPU tensors, not one on ",
              tensor.device());
  TORCH_CHECK(tensor.layout() == c10::kStrided, "the ", getBackendName(),
              " backend takes dense tensors, not ", tensor.layout());
}

at::Tensor& InlineBackend::single(Tensors& tensors) const {
  TORCH_CHECK(tensors.size() == 1, "the ", getBackendName(), " backend takes one tensor a rank, not ",
              tensors.size());
  require_dense_cpu(tensors[0]);
  return tensors[0];
}

void InlineBackend::require_alike(const at::Tensor& tensor, const at::Tensor& like) const {
  require_dense_cpu(tensor);
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
              "the tensors of a collective differ: ", tensor.scalar_type(), " of ", tensor.sizes(), " and ",
              like.scalar_type(), " of ", like.sizes());
}

// Several tensors a rank, sparse ones and those of other devices are the base's business.
bool InlineBackend::is_for_base(const Tensors& tensors) const {
  if (!base()) return false;
  return tensors.size() != 1 || tensors[0].layout() != c10::kStrided || !tensors[0].device().is_cpu();
}

void InlineBackend::compare_in(Patience& patience, const Call& own, uint64_t number) {
  transport_->name_call({});
  const auto differs = difference(own, [&](const std::string& bytes) {
    std::vector<std::string> all(static_cast<size_t>(getSize()), std::string(bytes.size(), '\0'));
    std::vector<std::byte*> places;
    for (auto& text : all) places.push_back(reinterpret_cast<std::byte*>(text.data()));
    transport_->all_gather(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), places, patience);
    return all;
  });
  if (!differs.empty()) std::rethrow_exception(roll_->end_at(number, differs));
}

void InlineBackend::compare_calls(const Call& own, const Collective& collective) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  try {
    Patience patience(*roll_, collective.number, collective.timeout, transport_->crowded());
    compare_in(patience, own, collective.number);
  } catch (const OutOfPatience& reason) {
    std::rethrow_exception(roll_->judge(collective, reason.cause, reason.timed_out));
  } catch (const UnlikeCalls&) {  // the other one is not comparing
    std::rethrow_exception(roll_->judge(collective, "another rank is in another call", false));
  }
}

template <class Body>
std::exception_ptr InlineBackend::carry_out(const Beginning& beginning, const Body& body) {
  try {
    roll_->require_alive();  // it may have died while this one waited for its turn
    Patience patience(*roll_, beginning.number, beginning.limit, transport_->crowded());
    if (roll_->compares_calls()) compare_in(patience, beginning.call, beginning.number);
    transport_->name_call(beginning.word);
    body(patience);
    return nullptr;
  } catch (const OutOfPatience& reason) {
    return roll_->judge(beginning.collective(), reason.cause, reason.timed_out);
  } catch (const UnlikeCalls& unlike) {
    return roll_->end_at(beginning.number, difference_to(unlike, getRank(), beginning.word),
                         "found in shared memory");
  } catch (const Error&) {
    return std::current_exception();  // the roll's own
  } catch (const std::exception& error) {
    return roll_->judge(beginning.collective(), error.what(), false);  // others are in the middle of it
  }
}

bool InlineBackend::is_soon_done() {
  transport_->arrive();
  if (queue_.runs_here())
    queue_.run_waiting();  // a callback's own call: nobody else would end what is before it
  return queue_.runs_here() || (queue_.idle() && transport_->all_arrived());
}

// A call that would wait for another rank goes on, as with any backend of c10d: that rank may wait for what
// this one does next. What comes after it keeps its turn.
template <class Body>
InlineBackend::WorkPtr InlineBackend::run(const Asked& asked, const Tensors& tensors, Tensors results,
                                          Body body) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  const auto limit = asked.timeout == c10d::kUnsetTimeout ? options_->timeout : asked.timeout;
  number_ = roll_->begin(asked.type);
  Beginning beginning{asked.type, number_, limit, {}, word_for(asked, tensors)};
  if (roll_->compares_calls()) beginning.call = call_of(asked.type, tensors, how_of(asked));
  if (runs_ == Runs::in_the_call || is_soon_done()) {
    const auto error = carry_out(beginning, body);
    return c10::make_intrusive<FinishedWork>(getRank(), asked.type, number_, std::move(results), error);
  }
  auto work = c10::make_intrusive<QueuedWork>(getRank(), asked.type, number_, std::move(results));
  queue_.add(work, [this, beginning, body = std::move(body)] { return carry_out(beginning, body); });
  return work;
}

void InlineBackend::share(const Tensors& tensors) {
  // sizes may differ: then nothing is shared
  const auto work = run({OpType::ALLGATHER, options_->timeout}, {}, {}, [this, tensors](Patience& patience) {
    const auto block = transport_->take_block(block_bytes(tensors), patience);
    if (block) move_into(block, transport_->place(), tensors);
  });
  work->wait();
}

InlineBackend::WorkPtr InlineBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::broadcast(tensors, options);
  const at::Tensor& tensor = single(tensors);
  require_rank(options.rootRank, getSize(), "the root of a broadcast");
  return run({OpType::BROADCAST, options.timeout, -1, options.rootRank}, tensors, tensors,
             [this, tensor, root = static_cast<int>(options.rootRank)](Patience& patience) {
               Flat flat(tensor);
               transport_->broadcast(flat.data(), flat.bytes(), root, patience);
               flat.write_back();
             });
}

// As gloo cuts the message of that operation.
Fold InlineBackend::fold_for(OpType type, size_t items, size_t item_bytes) const {
  const auto ranks = static_cast<size_t>(getSize());
  if (order_ == SumOrder::by_rank) return Fold::by_rank(ranks);
  const size_t chunk = type == OpType::REDUCE ? algorithms::gloo_reduce_chunk(items, item_bytes, getSize())
                                              : algorithms::gloo_chunk(items, item_bytes, getSize());
  return Fold::as_gloo(ranks, chunk * item_bytes);
}

void InlineBackend::reduce_all(at::Tensor tensor, const c10d::ReduceOp& op, OpType type, bool keep,
                               Patience& patience) {
  Flat flat(tensor);
  const Reduction& reduction = find_reduction(tensor.scalar_type(), op, order_ == SumOrder::as_gloo);
  const Fold fold = fold_for(type, flat.items(), reduction.item_bytes);
  transport_->all_reduce(flat.data(), keep ? flat.data() : nullptr, flat.items(), reduction, fold, patience);
  if (!keep) return;
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

InlineBackend::WorkPtr InlineBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::allreduce(tensors, options);
  const at::Tensor& tensor = single(tensors);
  find_reduction(tensor.scalar_type(), options.reduceOp);
  return run({OpType::ALLREDUCE, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
             [this, tensor, op = options.reduceOp](Patience& patience) {
               reduce_all(tensor, op, OpType::ALLREDUCE, true, patience);
             });
}

// As gloo does: one message of all of them, where they are of one type.
void InlineBackend::reduce_coalesced(Tensors tensors, const c10d::ReduceOp& op, Patience& patience) {
  const auto alike = [&](const at::Tensor& one) { return one.scalar_type() == tensors[0].scalar_type(); };
  if (tensors.size() < 2 || order_ == SumOrder::by_rank ||
      !std::all_of(tensors.begin(), tensors.end(), alike)) {
    for (auto& tensor : tensors) reduce_all(tensor, op, OpType::ALLREDUCE_COALESCED, true, patience);
    return;
  }
  const at::NoGradGuard no_grad;
  Tensors flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  const auto all = at::cat(flat);
  reduce_all(all, op, OpType::ALLREDUCE_COALESCED, true, patience);
  int64_t at = 0;
  for (auto& tensor : tensors) {
    tensor.copy_(all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

InlineBackend::WorkPtr InlineBackend::allreduce_coalesced(Tensors& tensors,
                                                          const c10d::AllreduceCoalescedOptions& options) {
  for (auto& tensor : tensors) {
    require_dense_cpu(tensor);
    find_reduction(tensor.scalar_type(), options.reduceOp);
  }
  return run({OpType::ALLREDUCE_COALESCED, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
             [this, tensors, op = options.reduceOp](Patience& patience) {
               reduce_coalesced(tensors, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::reduce(tensors, options);
  const at::Tensor& tensor = single(tensors);
  require_rank(options.rootRank, getSize(), "the root of a reduce");
  find_reduction(tensor.scalar_type(), options.reduceOp);
  const bool keep = getRank() == options.rootRank;
  return run({OpType::REDUCE, options.timeout, number_of(options.reduceOp), options.rootRank}, tensors,
             tensors, [this, tensor, keep, op = options.reduceOp](Patience& patience) {
               reduce_all(tensor, op, OpType::REDUCE, keep, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  if (is_for_base(inputs)) return ForwardingBackend::allgather(outputs, inputs, options);
  const at::Tensor& input = single(inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()), "an all-gather of ",
              getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& output : outputs[0]) require_alike(output, input);
  return run({OpType::ALLGATHER, options.timeout}, inputs, outputs[0],
             [this, input, results = outputs[0]](Patience& patience) {
               const Flat from(input);
               std::vector<Flat> into;
               std::vector<std::byte*> places;
               for (const auto& output : results) places.push_back(into.emplace_back(output).data());
               transport_->all_gather(from.data(), from.bytes(), places, patience);
               for (auto& flat : into) flat.write_back();
             });
}

InlineBackend::WorkPtr InlineBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  require_dense_cpu(input);
  const Tensors pieces = pieces_of(output, getSize());
  for (const auto& piece : pieces) require_alike(piece, input);
  return run({OpType::_ALLGATHER_BASE, options.timeout}, {input}, {output},
             [this, input, pieces](Patience& patience) {
               const Flat from(input);
               transport_->all_gather(from.data(), from.bytes(), places_of(pieces), patience);
             });
}

// gloo sums all of a list's parts as messages of their own, and those of one tensor as one message.
void InlineBackend::scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one,
                                const c10d::ReduceOp& op, Patience& patience) {
  Flat flat(output);
  const Reduction& reduction = find_reduction(output.scalar_type(), op, order_ == SumOrder::as_gloo);
  const size_t message = flat.items() * (in_one ? inputs.size() : 1);
  const Fold fold = fold_for(OpType::REDUCE_SCATTER, message, reduction.item_bytes);
  Tensors kept;
  std::vector<const std::byte*> places;
  for (const auto& input : inputs) places.push_back(data_of(kept.emplace_back(input.contiguous())));
  transport_->reduce_scatter(places, flat.data(), flat.items(), reduction, fold,
                             in_one ? static_cast<size_t>(getRank()) * flat.bytes() : 0, patience);
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

InlineBackend::WorkPtr InlineBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  if (is_for_base(outputs)) return ForwardingBackend::reduce_scatter(outputs, inputs, options);
  const at::Tensor& output = single(outputs);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
              "a reduce-scatter of ", getSize(), " ranks needs one list of ", getSize(), " tensors");
  for (const auto& input : inputs[0]) require_alike(input, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run({OpType::REDUCE_SCATTER, options.timeout, number_of(options.reduceOp)}, outputs, outputs,
             [this, output, given = inputs[0], op = options.reduceOp](Patience& patience) {
               scatter_sum(output, given, false, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& options) {
  require_dense_cpu(output);
  const Tensors pieces = pieces_of(input, getSize());
  for (const auto& piece : pieces) require_alike(piece, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run({OpType::_REDUCE_SCATTER_BASE, options.timeout, number_of(options.reduceOp)}, {output}, {output},
             [this, output, pieces, op = options.reduceOp](Patience& patience) {
               scatter_sum(output, pieces, true, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::barrier(const c10d::BarrierOptions& options) {
  // gloo's waits for all that this rank has begun there, and so does one over it
  if (base() && has_forwarded()) ForwardingBackend::barrier(options)->wait();
  return run({OpType::BARRIER, options.timeout}, {}, {},
             [this](Patience& patience) { transport_->barrier(patience); });
}

}  // namespace lockstep::comm
