#include "lockstep/parallel/team.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/files/pack.h"

namespace lockstep {
namespace {

at::Tensor bytes_of(const std::string& text) {
  auto bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kUInt8);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));  // an empty tensor has no data
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel()));
}

}  // namespace

at::Device Team::host_device() const {
  const auto types = group_ ? group_->getDeviceTypes() : std::vector<at::Device>{at::kCPU};
  const bool on_cpu = std::any_of(types.begin(), types.end(), [](const auto& one) { return one.is_cpu(); });
  return on_cpu ? at::kCPU : device_;
}

void Team::reduce(std::vector<double>& values, bool max) const {
  if (alone()) return;
  auto host = torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat64);
  std::vector<at::Tensor> tensors{host.to(device_, /*non_blocking=*/false, /*copy=*/true)};
  c10d::AllreduceOptions options;
  options.reduceOp = max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
  group_->allreduce(tensors, options)->wait();
  host.copy_(tensors[0]);
}

void Team::sum(std::vector<double>& values) const {
  reduce(values, false);
}
void Team::max(std::vector<double>& values) const {
  reduce(values, true);
}

void Team::sum(std::vector<at::Tensor>& tensors) const {
  if (alone()) return;
  for (auto& tensor : tensors) {
    std::vector<at::Tensor> moved{tensor.to(device_)};
    group_->allreduce(moved)->wait();
    if (!moved[0].is_same(tensor)) tensor.copy_(moved[0]);
  }
}

std::vector<at::Tensor> Team::all_gather(const at::Tensor& tensor) const {
  if (alone()) return {tensor};
  std::vector<at::Tensor> mine{tensor.contiguous().to(device_)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int i = 0; i < world(); ++i) all[0].push_back(torch::empty_like(mine[0]));
  group_->allgather(all, mine)->wait();
  for (auto& one : all[0]) one = one.to(torch::kCPU);
  return all[0];
}

std::vector<std::string> Team::all_gather(const std::string& text) const {
  if (alone()) return {text};
  std::vector<int64_t> sizes;
  for (const auto& size : all_gather(torch::tensor(static_cast<int64_t>(text.size())))) {
    sizes.push_back(size.item<int64_t>());
  }
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest == 0) return std::vector<std::string>(sizes.size());
  auto padded = torch::zeros({longest}, torch::kUInt8);
  padded.narrow(0, 0, sizes[static_cast<size_t>(rank())]).copy_(bytes_of(text));
  std::vector<std::string> texts;
  for (const auto& bytes : all_gather(padded)) texts.push_back(text_of(bytes).substr(0, sizes[texts.size()]));
  return texts;
}

std::string Team::broadcast(const std::string& text) const {
  if (alone()) return text;
  std::vector<at::Tensor> size{torch::tensor({static_cast<int64_t>(text.size())}).to(device_)};
  group_->broadcast(size)->wait();
  const auto length = size[0].item<int64_t>();
  if (length == 0) return {};
  std::vector<at::Tensor> bytes{first()
                                    ? bytes_of(text).to(device_)
                                    : torch::empty({length}, torch::dtype(torch::kUInt8).device(device_))};
  group_->broadcast(bytes)->wait();
  return text_of(bytes[0].to(torch::kCPU));
}

void Team::barrier() const {
  if (!alone()) group_->barrier()->wait();
}

void Team::time_what_is_under_way() const {
  if (alone() || !device_.is_cuda()) return;
  std::vector<at::Tensor> one{torch::zeros({1}, device_)};
  group_->allreduce(one)->wait();  // the stream waits, not the host
}

std::string Team::from_first(const std::function<std::string()>& work) const {
  return base::unpack_outcome(broadcast(first() ? base::pack_outcome(work) : ""));
}

void Team::together(const std::function<void()>& work) const {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = base::pack_error(error);
  }
  std::vector<double> failures{failure.empty() ? 0.0 : 1.0};
  sum(failures);
  if (failures[0] == 0) return;
  const auto all = all_gather(failure);
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  base::throw_packed_error(*found);
}

}  // namespace lockstep
