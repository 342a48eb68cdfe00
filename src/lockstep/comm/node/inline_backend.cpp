#include "lockstep/comm/node/inline_backend.h"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/gloo_chunks.h"
#include "lockstep/comm/node/block_tensors.h"
#include "lockstep/comm/node/flat.h"
#include "lockstep/comm/node/inline_run.h"
#include "lockstep/comm/watch/message.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {
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

CallWord InlineBackend::word_for(const Asked& asked, const Tensors& tensors) {
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

std::string InlineBackend::how_of(const Asked& asked) {
  std::string how;
  if (asked.reduction >= 0) how += of_sum(static_cast<c10d::ReduceOp::RedOpType>(asked.reduction));
  if (asked.root >= 0) how += of_root(asked.root);
  return how;
}

InlineBackend::InlineBackend(const std::string& name, const c10::intrusive_ptr<c10d::Backend>& base,
                             std::unique_ptr<Transport> transport, std::shared_ptr<RollCall> roll,
                             std::chrono::milliseconds timeout, SumOrder order, Execution runs)
    : ForwardingBackend(roll->rank(), static_cast<int>(roll->peers().size()), or_none(base, *roll, name)),
      has_base_(base != nullptr),
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
  if (!has_base_) return false;
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

bool InlineBackend::is_soon_done() {
  transport_->arrive();
  if (queue_.runs_here())
    queue_.run_waiting();  // a callback's own call: nobody else would end what is before it
  return queue_.runs_here() || (queue_.idle() && transport_->all_arrived());
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
  Flat flat(tensor, ElementOrder::memory);
  const Reduction& reduction = find_reduction(tensor.scalar_type(), op, order_ == SumOrder::as_gloo);
  const Fold fold = fold_for(type, flat.items(), reduction.item_bytes);
  transport_->all_reduce(flat.data(), keep ? flat.data() : nullptr, flat.items(), reduction, fold, patience);
  if (!keep) return;
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
}

InlineBackend::WorkPtr InlineBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::allreduce(tensors, options);
  const auto tensor = summed_as(single(tensors), options.reduceOp);
  find_reduction(tensor.scalar_type(), options.reduceOp);
  return run({OpType::ALLREDUCE, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
             [this, tensor, op = options.reduceOp](Patience& patience) {
               reduce_all(tensor, op, OpType::ALLREDUCE, true, patience);
             });
}

// As gloo does: one message of all of them, where they are of one type.
void InlineBackend::reduce_coalesced(Tensors tensors, const c10d::ReduceOp& op, Patience& patience) {
  const auto alike = [&](const at::Tensor& one) { return one.scalar_type() == tensors[0].scalar_type(); };
  if (tensors.empty() || order_ == SumOrder::by_rank || !std::all_of(tensors.begin(), tensors.end(), alike)) {
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
  for (const auto& tensor : tensors) require_dense_cpu(tensor);
  const auto given = summed_as(tensors, options.reduceOp);
  for (const auto& tensor : given) find_reduction(tensor.scalar_type(), options.reduceOp);
  return run(
      {OpType::ALLREDUCE_COALESCED, options.timeout, number_of(options.reduceOp)}, tensors, tensors,
      [this, given, op = options.reduceOp](Patience& patience) { reduce_coalesced(given, op, patience); });
}

InlineBackend::WorkPtr InlineBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  if (is_for_base(tensors)) return ForwardingBackend::reduce(tensors, options);
  const auto tensor = summed_as(single(tensors), options.reduceOp);
  require_rank(options.rootRank, getSize(), "the root of a reduce");
  find_reduction(tensor.scalar_type(), options.reduceOp);
  const bool keep = getRank() == options.rootRank;
  return run({OpType::REDUCE, options.timeout, number_of(options.reduceOp), options.rootRank}, tensors,
             tensors, [this, tensor, keep, op = options.reduceOp](Patience& patience) {
               reduce_all(tensor, op, OpType::REDUCE, keep, patience);
             });
}

// gloo sums all of a list's parts as messages of their own, and those of one tensor as one message.
void InlineBackend::scatter_sum(at::Tensor output, const Tensors& inputs, bool in_one,
                                const c10d::ReduceOp& op, Patience& patience) {
  // a dense part that is not row-major is summed in memory order
  const auto& own = inputs[static_cast<size_t>(getRank())];
  const bool permuted = !own.is_contiguous() && own.is_non_overlapping_and_dense();
  const auto sum = permuted ? at::empty_like(own) : output;
  Flat flat(sum, permuted ? ElementOrder::memory : ElementOrder::logical);
  const Reduction& reduction = find_reduction(output.scalar_type(), op, order_ == SumOrder::as_gloo);
  const size_t message = flat.items() * (in_one ? inputs.size() : 1);
  const Fold fold = fold_for(OpType::REDUCE_SCATTER, message, reduction.item_bytes);
  const Flats given(inputs, ElementOrder::memory);
  const auto places = given.places();
  transport_->reduce_scatter({places.begin(), places.end()}, flat.data(), flat.items(), reduction, fold,
                             in_one ? static_cast<size_t>(getRank()) * flat.bytes() : 0, patience);
  if (reduction.divide) reduction.divide(flat.data(), flat.items(), getSize());
  flat.write_back();
  const at::NoGradGuard no_grad;
  if (permuted) output.copy_(sum);
}

InlineBackend::WorkPtr InlineBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  if (is_for_base(outputs)) return ForwardingBackend::reduce_scatter(outputs, inputs, options);
  const auto output = summed_as(single(outputs), options.reduceOp);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
              "a reduce-scatter of ", getSize(), " ranks needs one list of ", getSize(), " tensors");
  const auto given = summed_as(inputs[0], options.reduceOp);
  for (const auto& input : given) require_alike(input, output);
  find_reduction(output.scalar_type(), options.reduceOp);
  return run({OpType::REDUCE_SCATTER, options.timeout, number_of(options.reduceOp)}, outputs, outputs,
             [this, output, given, op = options.reduceOp](Patience& patience) {
               scatter_sum(output, given, false, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& options) {
  require_dense_cpu(output);
  const auto sum = summed_as(output, options.reduceOp);
  const Tensors pieces = pieces_of(summed_as(input, options.reduceOp), getSize());
  for (const auto& piece : pieces) require_alike(piece, sum);
  find_reduction(sum.scalar_type(), options.reduceOp);
  return run({OpType::_REDUCE_SCATTER_BASE, options.timeout, number_of(options.reduceOp)}, {output}, {output},
             [this, sum, pieces, op = options.reduceOp](Patience& patience) {
               scatter_sum(sum, pieces, true, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::reduce_scatter_tensor_coalesced(
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
             [this, sums, pieces, op = options.reduceOp](Patience& patience) {
               for (size_t i = 0; i < sums.size(); ++i) scatter_sum(sums[i], pieces[i], true, op, patience);
             });
}

InlineBackend::WorkPtr InlineBackend::barrier(const c10d::BarrierOptions& options) {
  // gloo's waits for all that this rank has begun there, and so does one over it
  if (has_base_ && has_forwarded()) ForwardingBackend::barrier(options)->wait();
  return run({OpType::BARRIER, options.timeout}, {}, {},
             [this](Patience& patience) { transport_->barrier(patience); });
}

}  // namespace lockstep::comm
