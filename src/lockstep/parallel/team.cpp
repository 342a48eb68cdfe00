#include "lockstep/parallel/team.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/files/pack.h"
#include "lockstep/comm/group_texts.h"

namespace lockstep {

void Mean::add(const at::Tensor& value) {
  const at::Tensor sum = value.detach().to(at::kDouble).sum();
  sum_ = sum_.defined() ? sum_ + sum : sum;
  count_ += static_cast<double>(value.numel());
}

void Mean::add(double value, double count) {
  const at::Tensor sum = at::scalar_tensor(value * count, at::kDouble);
  sum_ = sum_.defined() ? sum_ + sum : sum;
  count_ += count;
}

double Mean::value() const {
  const auto [sum, count] = total();
  return sum / count;  // 0 / 0 is NaN
}

std::pair<double, double> Mean::total() const {
  return {sum_.defined() ? sum_.item<double>() : 0, count_};
}

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

void Team::sum(std::vector<at::Tensor>& tensors) const {
  if (alone()) return;
  for (auto& tensor : tensors) {
    std::vector<at::Tensor> moved{tensor.to(device_)};
    group_->allreduce(moved)->wait();
    if (!moved[0].is_same(tensor)) tensor.copy_(moved[0]);
  }
}

std::vector<at::Tensor> Team::all_gather(const at::Tensor& tensor) const {
  return alone() ? std::vector{tensor} : comm::all_gather(group_, tensor, device_);
}

std::vector<std::string> Team::all_gather(const std::string& text) const {
  return alone() ? std::vector{text} : comm::all_gather(group_, text, device_);
}

std::string Team::broadcast(const std::string& text) const {
  return alone() ? text : comm::broadcast(group_, text, device_);
}

void Team::barrier() const {
  if (!alone()) group_->barrier()->wait();
}

void Team::time_queued_work() const {
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
