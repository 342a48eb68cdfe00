#include "lockstep/comm/algorithm_backend.h"

#include <ATen/ATen.h>

#include "lockstep/base/format.h"
#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {
namespace {

void require_dense_cpu(const std::vector<at::Tensor>& tensors, const std::string& name) {
  for (const auto& tensor : tensors)
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == c10::kStrided, "the all-reduce ", name,
                " takes dense CPU tensors, not a ", tensor.layout(), " one on ", tensor.device());
}

}  // namespace

AlgorithmBackend::AlgorithmBackend(BackendPtr base, const Algorithm& algorithm, Delay delay,
                                   std::shared_ptr<PeerMonitor> monitor, std::chrono::milliseconds timeout)
    : InterceptedBackend(base, base->getRank(), base->getSize()),
      messages_(dynamic_cast<MessageRunner&>(*base)),
      algorithm_(algorithm),
      monitor_(std::move(monitor)),
      timeout_(timeout),
      delay_(delay) {}

void AlgorithmBackend::set_delay(Delay delay) {
  const std::lock_guard<std::mutex> guard(mutex_);
  delay_ = delay;
}

std::exception_ptr AlgorithmBackend::run_messages(const Collective& collective,
                                                  const std::function<void(Messenger&)>& body,
                                                  const OnGivenUp& on_given_up) {
  const auto delay = [this] {
    const std::lock_guard<std::mutex> guard(mutex_);
    return delay_;
  }();
  if (delay == Delay{}) return messages_.run_messages(collective, body, on_given_up);
  return messages_.run_messages(
      collective,
      [&](Messenger& messenger) {
        DelayedMessenger delayed(messenger, delay);
        body(delayed);
      },
      on_given_up);
}

AlgorithmBackend::WorkPtr AlgorithmBackend::around(const BackendCall& call, Tensors& outputs, Tensors& inputs,
                                                   InnerCall inner) {
  if (call.type != OpType::ALLREDUCE && call.type != OpType::ALLREDUCE_COALESCED)
    return inner(outputs, inputs, call.timeout);
  TORCH_CHECK(call.type != OpType::ALLREDUCE || outputs.size() == 1, "the all-reduce ", algorithm_.name,
              " takes one tensor per rank, not ", outputs.size());
  require_dense_cpu(outputs, algorithm_.name);
  std::vector<Reduction> reductions;
  for (const auto& tensor : outputs)
    reductions.push_back(find_reduction(tensor.scalar_type(), *call.reduction));
  const Collective collective{format("{} ({})", op_name(call.type), algorithm_.name),
                              monitor_->begin(call.type),
                              call.timeout == c10d::kUnsetTimeout ? timeout_.load() : call.timeout};
  if (monitor_->compares_calls()) compare(call_of(call.type, outputs, details_of(call)), collective);
  auto work = c10::make_intrusive<QueuedWork>(getRank(), call.type, collective.number, outputs);
  queue_.add(work, [this, collective, tensors = outputs, reductions = std::move(reductions)] {
    monitor_->require_alive();  // the group may have died while this call was queued
    return run(collective, tensors, reductions);
  });
  return work;
}

std::exception_ptr AlgorithmBackend::run(const Collective& collective, const Tensors& tensors,
                                         const std::vector<Reduction>& reductions) {
  const at::NoGradGuard no_grad;  // it may be a parameter
  return run_messages(
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
