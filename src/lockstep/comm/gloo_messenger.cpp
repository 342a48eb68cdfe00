#include "lockstep/comm/gloo_messenger.h"

#include <ATen/ATen.h>

#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/watch/limits.h"

namespace lockstep::comm {
namespace {

using Gloo = c10d::ProcessGroupGloo;

std::vector<at::Tensor> tensors_over(std::span<const std::byte> bytes) {
  return {
      at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, at::kByte)};
}

}  // namespace

// Gloo's own calls, not those that override them: these messages are not watched one by one.
void GlooMessenger::transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto& [from, bytes] : in) {
    auto tensors = tensors_over(bytes);
    works.push_back(gloo_.Gloo::recv(tensors, from, kCollectiveTag));
  }
  for (const auto& [to, bytes] : out) {
    auto tensors = tensors_over(bytes);
    works.push_back(gloo_.Gloo::send(tensors, to, kCollectiveTag));
  }
  for (const auto& work : works) work->wait(kNever);
}

}  // namespace lockstep::comm
