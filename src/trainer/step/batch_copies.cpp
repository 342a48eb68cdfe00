#include "trainer/step/batch_copies.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace lockstep::train {

BatchCopies::BatchCopies(at::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void BatchCopies::begin(const Batch* batch) {
  if (batch && batch->input.is_cpu()) next_ = send(*batch);
}

// What lies on a CPU stays as it is: a small model's step is short enough for a call that finds nothing to
// do.
at::Tensor BatchCopies::copied(const at::Tensor& tensor) const {
  return !tensor.defined() || tensor.device() == device_ ? tensor : tensor.to(device_, /*non_blocking=*/true);
}

// Page-locked memory is libtorch's, which gives it to nobody before this stream has come past the copy.
BatchCopies::Copy BatchCopies::send(const Batch& batch) const {
  const c10::StreamGuard on(*stream_);
  Copy copy{batch.input, {copied(batch.input), copied(batch.target)}, c10::Event(device_.type())};
  copy.done.record(*stream_);
  return copy;
}

BatchCopies::Placed BatchCopies::take(const Batch& batch) {
  if (!stream_ || !batch.input.is_cpu()) return {copied(batch.input), copied(batch.target)};
  auto copy = std::exchange(next_, std::nullopt);
  if (!copy || !copy->of.is_same(batch.input)) copy = send(batch);
  const auto computing = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  copy->done.block(computing);
  for (const auto& tensor : {copy->placed.input, copy->placed.target})
    if (tensor.defined() && tensor.is_cuda()) tensor.record_stream(computing);
  return copy->placed;
}

}  // namespace lockstep::train
