#include "trainer/step/batch_copies.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

namespace lockstep::train {

// What lies there stays as it is: a small model's step is short enough for a call that finds nothing to do.
at::Tensor on_device(const at::Tensor& tensor, at::Device device) {
  return !tensor.defined() || tensor.device() == device ? tensor : tensor.to(device, /*non_blocking=*/true);
}

BatchCopies::BatchCopies(at::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

BatchCopies::~BatchCopies() {
  try {
    for (const auto& source : under_way_) source.done->synchronize();
  } catch (const std::exception&) {
    // a device that failed reads no more
  }
}

// An error belongs to the batch's own step, not to the one that this one travels beside.
void BatchCopies::begin(const Batch* batch) {
  if (!batch || !batch->input.is_cpu()) return;
  try {
    next_ = send(*batch);
  } catch (const std::exception&) {
    next_.reset();
  }
}

BatchCopies::Copy BatchCopies::send(const Batch& batch) {
  let_go();
  const c10::StreamGuard on(*stream_);
  const auto done = std::make_shared<c10::Event>(device_.type());
  Copy copy{{batch.input, batch.target, done},
            {on_device(batch.input, device_), on_device(batch.target, device_)}};
  done->record(*stream_);
  under_way_.push_back(copy.of);
  return copy;
}

// libtorch gives page-locked memory of its own to nobody before the copy is done; a set may have other.
void BatchCopies::let_go() {
  while (!under_way_.empty() && under_way_.front().done->query()) under_way_.pop_front();
}

BatchCopies::Placed BatchCopies::take(const Batch& batch) {
  if (!stream_ || !batch.input.is_cpu())
    return {on_device(batch.input, device_), on_device(batch.target, device_)};
  auto copy = std::exchange(next_, std::nullopt);
  if (!copy || !copy->of.input.is_same(batch.input)) copy = send(batch);
  const auto computing = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  copy->of.done->block(computing);
  for (const auto& tensor : {copy->placed.input, copy->placed.target})
    if (tensor.defined() && tensor.is_cuda()) tensor.record_stream(computing);
  return copy->placed;
}

}  // namespace lockstep::train
