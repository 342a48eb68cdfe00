#include "lockstep/comm/node/block_tensors.h"

#include <cstring>

namespace lockstep::comm {
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

}  // namespace lockstep::comm
