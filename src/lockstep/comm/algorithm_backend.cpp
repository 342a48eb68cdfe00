#include "lockstep/comm/algorithm_backend.h"

#include <ATen/ATen.h>

#include "lockstep/base/format.h"
#include "lockstep/comm/memory/reduction.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/message.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;

Carrier& carrier_in(c10d::Backend& base) {
  auto* carrier = dynamic_cast<Carrier*>(&base);
  TORCH_CHECK(carrier, "the backend ", base.getBackendName(), " carries no messages of collectives");
  return *carrier;
}

void require_dense_cpu(const std::vector<at::Tensor>& tensors, const std::string& name) {
  for (const auto& tensor : tensors)
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == c10::kStrided, "the all-reduce ", name,
                " takes dense CPU tensors, not a ", tensor.layout(), " one on ", tensor.device());
}

}  // namespace

AlgorithmBackend::AlgorithmBackend(c10::intrusive_ptr<c10d::Backend> base, const Algorithm& algorithm,
                                   Delay delay, std::shared_ptr<RollCall> roll,
                                   std::chrono::milliseconds timeout)
    : ForwardingBackend(base->getRank(), base->getSize(), base),
      carrier_(carrier_in(*base)),
      algorithm_(algorithm),
      roll_(std::move(roll)),
      timeout_(timeout),
      delay_(delay) {}

void AlgorithmBackend::set_delay(Delay delay) {
  const std::lock_guard<std::mutex> guard(mutex_);
  delay_ = delay;
}

std::exception_ptr AlgorithmBackend::carry(const Collective& collective,
                                           const std::function<void(Messenger&)>& body,
                                           const OnGivenUp& on_given_up) {
  const auto delay = [this] {
    const std::lock_guard<std::mutex> guard(mutex_);
    return delay_;
  }();
  if (delay == Delay{}) return carrier_.carry(collective, body, on_given_up);
  return carrier_.carry(
      collective,
      [&](Messenger& messenger) {
        Delayed delayed(messenger, delay);
        body(delayed);
      },
      on_given_up);
}

AlgorithmBackend::WorkPtr AlgorithmBackend::begin(OpType type, const Tensors& tensors,
                                                  const c10d::ReduceOp& op,
                                                  std::chrono::milliseconds timeout) {
  require_dense_cpu(tensors, algorithm_.name);
  std::vector<Reduction> reductions;
  for (const auto& tensor : tensors) reductions.push_back(find_reduction(tensor.scalar_type(), op));
  const Collective collective{format("{} ({})", op_name(type), algorithm_.name), roll_->begin(type),
                              timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout};
  if (roll_->compares_calls()) compare(call_of(type, tensors, of_sum(op)), collective);
  auto work = c10::make_intrusive<QueuedWork>(getRank(), type, collective.number, tensors);
  queue_.add(work, [this, collective, tensors, reductions = std::move(reductions)] {
    roll_->require_alive();  // it may have died while this one waited for its turn
    return run(collective, tensors, reductions);
  });
  return work;
}

AlgorithmBackend::WorkPtr AlgorithmBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1, "the all-reduce ", algorithm_.name, " takes one tensor a rank, not ",
              tensors.size());
  return begin(OpType::ALLREDUCE, tensors, options.reduceOp, options.timeout);
}

AlgorithmBackend::WorkPtr AlgorithmBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return begin(OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp, options.timeout);
}

std::exception_ptr AlgorithmBackend::run(const Collective& collective, const Tensors& tensors,
                                         const std::vector<Reduction>& reductions) {
  const at::NoGradGuard no_grad;  // it may be a parameter
  return carry(
      collective,
      [&](Messenger& messenger) {
        for (size_t i = 0; i < tensors.size(); ++i) {
          const auto& reduction = reductions[i];
          const auto flat = tensors[i].contiguous();
          const Numbers numbers{static_cast<std::byte*>(flat.data_ptr()),
                                static_cast<size_t>(flat.numel()),
                                {reduction.item_bytes, reduction.combine}};
          algorithm_.run(messenger, numbers);
          if (reduction.divide) reduction.divide(numbers.data, numbers.items, getSize());
          if (!flat.is_same(tensors[i])) tensors[i].copy_(flat);
        }
      },
      [this](const std::exception_ptr& error) { queue_.abandon(*this, error); });
}

}  // namespace lockstep::comm
