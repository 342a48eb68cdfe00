#include "lockstep/comm/nodes_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/libtorch.h"
#include "lockstep/comm/memory/call_word.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {

using c10d::OpType;

namespace {

constexpr size_t kBytesForEachRank = size_t{16} << 10;  // from there on gloo may be as quick

// What gloo sums: the same for short tensors and long ones.
bool is_gloos(at::ScalarType type, const c10d::ReduceOp& op) {
  constexpr std::array types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                at::kChar,  at::kByte,   at::kInt,  at::kLong};
  constexpr std::array ops = {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
                              c10d::ReduceOp::MAX};
  return std::find(types.begin(), types.end(), type) != types.end() &&
         std::find(ops.begin(), ops.end(), op) != ops.end();
}

}  // namespace

NodesBackend::NodesBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::unique_ptr<NodeTransport> node,
                           NodeLayout layout, std::shared_ptr<RollCall> roll,
                           std::chrono::milliseconds timeout)
    : ForwardingBackend(gloo->getRank(), gloo->getSize(), gloo),
      carrier_(dynamic_cast<Carrier&>(*gloo)),
      node_(std::move(node)),
      ring_(node_->window(), std::move(layout)),
      roll_(std::move(roll)),
      timeout_(timeout) {}

void NodesBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  base::set_timeout(*base(), timeout);
}

bool NodesBackend::is_ours(const Tensors& tensors, const c10d::ReduceOp& op) const {
  if (tensors.size() != 1 || !tensors[0].device().is_cpu() || tensors[0].layout() != c10::kStrided)
    return false;
  const size_t most = std::min(kMostBytes, kBytesForEachRank * static_cast<size_t>(getSize()));
  return tensors[0].nbytes() <= most && is_gloos(tensors[0].scalar_type(), op);
}

NodesBackend::WorkPtr NodesBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (!is_ours(tensors, options.reduceOp)) return ForwardingBackend::allreduce(tensors, options);
  const auto type = tensors[0].scalar_type();
  const Reduction reduction = find_reduction(type, options.reduceOp, true);
  const auto limit = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  const Collective collective{op_name(OpType::ALLREDUCE), roll_->begin(OpType::ALLREDUCE), limit};
  if (roll_->compares_calls())
    carrier_.compare(call_of(OpType::ALLREDUCE, tensors, of_sum(options.reduceOp)), collective);
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp);
  const auto word = word_of(OpType::ALLREDUCE, static_cast<int>(op), -1, type, tensors[0].nbytes());
  auto work = c10::make_intrusive<QueuedWork>(getRank(), OpType::ALLREDUCE, collective.number, tensors);
  queue_.add(work, [this, collective, word, tensor = tensors[0], reduction] {
    roll_->require_alive();  // it may have died while this one waited for its turn
    return sum(collective, word, tensor, reduction);
  });
  return work;
}

// As gloo's, after all that this rank has begun.
NodesBackend::WorkPtr NodesBackend::barrier(const c10d::BarrierOptions& options) {
  if (queue_.runs_here()) {
    queue_.run_waiting();
  } else if (const auto last = queue_.newest()) {
    last->wait();
  }
  return ForwardingBackend::barrier(options);
}

std::exception_ptr NodesBackend::sum(const Collective& collective, const CallWord& word, at::Tensor tensor,
                                     const Reduction& reduction) {
  std::exception_ptr in_memory;
  const auto over_gloo = carrier_.carry(
      collective,
      [&](Messenger& messenger) {
        const at::NoGradGuard no_grad;  // it may be a parameter
        // in the order of memory, as gloo; what has gaps gloo would take for dense
        const auto flat = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
        auto* data = static_cast<std::byte*>(flat.data_ptr());
        const auto items = static_cast<size_t>(flat.numel());
        try {
          Patience patience(*roll_, collective.number, collective.timeout, node_->crowded());
          node_->name_call(word);
          ring_.all_reduce(messenger, data, items, reduction, patience);
        } catch (const OutOfPatience& reason) {
          in_memory = roll_->judge(collective, reason.cause, reason.timed_out);
          return;
        } catch (const UnlikeCalls& unlike) {
          in_memory = roll_->end_all_at(collective.number, difference_to(unlike, getRank(), word));
          return;
        }
        if (reduction.divide) reduction.divide(data, items, getSize());
        if (!flat.is_same(tensor)) tensor.copy_(flat);
      },
      [this](const std::exception_ptr& error) { queue_.abandon(*this, error); });
  return in_memory ? in_memory : over_gloo;
}

}  // namespace lockstep::comm
