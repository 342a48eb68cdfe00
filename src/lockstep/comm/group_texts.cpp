#include "lockstep/comm/group_texts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace lockstep::comm {
namespace {

at::Tensor size_of(const std::string& text) {
  return at::tensor({static_cast<int64_t>(text.size())});
}

}  // namespace

at::Tensor bytes_of(const std::string& text) {
  auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));  // an empty tensor has no data
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel())};
}

std::vector<at::Tensor> all_gather(const ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> own{tensor.contiguous()};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < group->getSize(); ++rank) all[0].push_back(at::empty_like(own[0]));
  group->allgather(all, own)->wait();
  return std::move(all[0]);
}

std::vector<at::Tensor> all_gather(const ProcessGroup& group, const at::Tensor& tensor, at::Device device) {
  auto all = all_gather(group, tensor.to(device));
  for (auto& one : all) one = one.to(at::kCPU);
  return all;
}

std::vector<std::string> all_gather(const ProcessGroup& group, const std::string& text, at::Device device) {
  std::vector<int64_t> sizes;
  for (const auto& size : all_gather(group, size_of(text), device)) sizes.push_back(size.item<int64_t>());
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return std::vector<std::string>(sizes.size());
  auto padded = at::zeros({longest}, at::kByte);
  padded.narrow(0, 0, static_cast<int64_t>(text.size())).copy_(bytes_of(text));
  std::vector<std::string> texts;
  for (const auto& bytes : all_gather(group, padded, device))
    texts.push_back(text_of(bytes.narrow(0, 0, sizes[texts.size()])));
  return texts;
}

std::string broadcast(const ProcessGroup& group, const std::string& text, at::Device device) {
  std::vector<at::Tensor> size{size_of(text).to(device)};
  group->broadcast(size)->wait();
  const auto length = size[0].item<int64_t>();
  if (length == 0) return {};
  std::vector<at::Tensor> bytes{group->getRank() == 0
                                    ? bytes_of(text).to(device)
                                    : at::empty({length}, at::TensorOptions(device).dtype(at::kByte))};
  group->broadcast(bytes)->wait();
  return text_of(bytes[0].to(at::kCPU));
}

}  // namespace lockstep::comm
