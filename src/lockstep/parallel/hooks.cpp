// The built-in comm hooks but PowerSGD.
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "lockstep/base/plugins/tables.h"
#include "lockstep/parallel/comm_hook.h"

namespace lockstep {

int64_t GradBucket::index() const {
  return static_cast<int64_t>(bucket_.getIndex());
}
bool GradBucket::is_last() const {
  return bucket_.isLast();
}
at::Tensor GradBucket::buffer() const {
  return bucket_.getBuffer();
}
void GradBucket::set_buffer(at::Tensor buffer) {
  bucket_.setBuffer(buffer);
}
std::vector<at::Tensor> GradBucket::gradients() const {
  return bucket_.getGradients();
}
std::vector<at::Tensor> GradBucket::parameters() const {
  return bucket_.getParameters();
}

namespace hooks {
namespace {

at::Tensor first_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : value.toTensorVector().at(0);
}

const HookMemory kKeepsNothing;

// Divided first, so that float16 sums stay in range.
CommHook compress(ProcessGroup group, at::ScalarType type) {
  const auto call = [group = std::move(group), type](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    const at::Tensor small = buffer.to(type).div_(group->getSize());
    return then(all_reduce(group, small), [buffer](at::Tensor sum) { return buffer.copy_(sum); });
  };
  return {call, kKeepsNothing};
}

CommHook compress_wrapper(const CommHook& hook, at::ScalarType type) {
  const auto call = [hook, type](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    bucket.set_buffer(buffer.to(type));
    return then(hook(bucket), [buffer](at::Tensor reduced) { return buffer.copy_(reduced); });
  };
  return {call, hook};
}

}  // namespace

GradFuture all_reduce(const ProcessGroup& group, at::Tensor tensor) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return then(group->allreduce(tensors)->getFuture(), [](at::Tensor sum) { return sum; });
}

GradFuture ready(at::Tensor tensor) {
  std::vector<c10::Device> devices;
  if (!tensor.device().is_cpu()) devices.push_back(tensor.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(c10::IValue(std::move(tensor)));
  return future;
}

GradFuture then(const GradFuture& future, std::function<at::Tensor(at::Tensor)> next) {
  // value() rethrows what went wrong; wait() would not
  return future->then(
      [next = std::move(next)](c10::ivalue::Future& done) {
        return c10::IValue(next(first_tensor(done.value())));
      },
      c10::TensorType::get());
}

CommHook allreduce(ProcessGroup group) {
  const auto call = [group = std::move(group)](GradBucket& bucket) {
    return all_reduce(group, bucket.buffer().div_(group->getSize()));
  };
  return {call, kKeepsNothing};
}

CommHook fp16_compress(ProcessGroup group) {
  return compress(std::move(group), at::kHalf);
}
CommHook bf16_compress(ProcessGroup group) {
  return compress(std::move(group), at::kBFloat16);
}
CommHook fp16_compress_wrapper(CommHook hook) {
  return compress_wrapper(hook, at::kHalf);
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return compress_wrapper(hook, at::kBFloat16);
}

CommHook by_name(const std::string& name, ProcessGroup group, const RowOptions& options) {
  return base::require<CommHookRow>("comm hook", name, "ddp.comm_hook").make(std::move(group), options);
}

}  // namespace hooks

LOCKSTEP_COMM_HOOK(
    none, .help = "the mean, without a hook",
    .make = [](ProcessGroup, const RowOptions&) { return CommHook(); })
LOCKSTEP_COMM_HOOK(
    allreduce, .help = "the mean, by a hook: the same bits",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::allreduce(std::move(group)); })
LOCKSTEP_COMM_HOOK(
    fp16, .help = "half the bytes: gradients travel as float16",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::fp16_compress(std::move(group)); })
LOCKSTEP_COMM_HOOK(
    bf16, .help = "half the bytes with float32's range: gradients travel as bfloat16",
    .make = [](ProcessGroup group, const RowOptions&) { return hooks::bf16_compress(std::move(group)); })

}  // namespace lockstep
