#include "lockstep/parallel/exchange.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// NCCL moves only what lies on a GPU
at::Tensor on_group_device(const at::Tensor& tensor, const ProcessGroup& group) {
  return group->getBackendName() == "nccl" ? tensor.to(at::kCUDA) : tensor;
}

at::Tensor summed(const at::Tensor& tensor, const ProcessGroup& group) {
  std::vector<at::Tensor> tensors = {on_group_device(tensor.detach().clone(), group)};
  group->allreduce(tensors)->wait();
  return tensors[0].to(tensor.device());
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  const at::Tensor here = bytes.cpu().contiguous();
  return {static_cast<const char*>(here.data_ptr()), static_cast<size_t>(here.numel())};
}

at::Tensor broadcast(at::Tensor tensor, const ProcessGroup& group, int root) {
  std::vector<at::Tensor> tensors = {on_group_device(tensor, group)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group->broadcast(tensors, options)->wait();
  return tensors[0];
}

}  // namespace

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

at::Tensor Mean::total() const {
  const at::Tensor sum = sum_.defined() ? sum_.cpu() : at::zeros({}, at::kDouble);
  return at::stack({sum, at::scalar_tensor(count_, at::kDouble)});
}

namespace {
double quotient(const at::Tensor& total) {
  const double count = total[1].item<double>();
  return count > 0 ? total[0].item<double>() / count : std::numeric_limits<double>::quiet_NaN();
}
}  // namespace

double Mean::value() const {
  return quotient(total());
}

double all_reduce_mean(const Mean& mean, const ProcessGroup& group) {
  return quotient(summed(mean.total(), group));
}

at::Tensor all_reduce_mean(const at::Tensor& tensor, const ProcessGroup& group) {
  return summed(tensor, group) / group->getSize();
}

std::string broadcast_text(const std::string& text, const ProcessGroup& group, int root) {
  const bool mine = group->getRank() == root;
  const int64_t size =
      broadcast(at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong), group, root).item<int64_t>();
  if (size == 0) return {};
  return text_of(broadcast(mine ? bytes_of(text) : at::empty({size}, at::kByte), group, root));
}

std::vector<std::string> all_gather_text(const std::string& text, const ProcessGroup& group) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < group->getSize(); ++rank) texts.push_back(broadcast_text(text, group, rank));
  return texts;
}

void rank0_only(const ProcessGroup& group, const std::function<void()>& body) {
  std::string failure;
  std::exception_ptr own;
  if (group->getRank() == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      own = std::current_exception();
      failure = "rank 0 failed: " + describe(error);
    }
  }
  failure = broadcast_text(failure, group);
  if (own) std::rethrow_exception(own);
  if (!failure.empty()) throw Error(failure);
}

void print_in_order(const std::string& text, const ProcessGroup& group) {
  const auto texts = all_gather_text(text, group);
  if (group->getRank() != 0) return;
  for (const auto& line : texts) std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace lockstep
