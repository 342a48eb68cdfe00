#include "lockstep/train/loss_trace.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

namespace lockstep::train {
namespace {
constexpr size_t kMostPending = 256;
}

void LossTrace::add(int64_t step, const at::Tensor& loss, const std::vector<int64_t>& indices) {
  if (loss.is_cpu() && loss.scalar_type() == at::kFloat)
    return take(step, *loss.const_data_ptr<float>(), indices);
  if (loss.is_cpu()) return take(step, loss.item<double>(), indices);
  pending_.push_back({step, loss.detach(), indices});
  if (pending_.size() >= kMostPending) settle();
}

void LossTrace::settle() {
  if (pending_.empty()) return;
  std::vector<at::Tensor> losses;
  for (const auto& one : pending_) losses.push_back(one.loss.to(torch::kFloat64));
  const auto values = torch::stack(losses).to(torch::kCPU);
  for (size_t i = 0; i < pending_.size(); ++i) {
    take(pending_[i].step, values.data_ptr<double>()[i], pending_[i].indices);
  }
  pending_.clear();
}

void LossTrace::take(int64_t step, double loss, const std::vector<int64_t>& indices) {
  if (step != step_) step_sum_ = 0, step_count_ = 0, step_ = step;
  sum_ += loss;
  step_sum_ += loss;
  ++count_;
  ++step_count_;
  if (!std::isfinite(loss) && !bad_) bad_ = BadLoss{step, loss, indices};
}

void LossTrace::restart(double sum, int64_t count) {
  settle();
  sum_ = sum;
  count_ = count;
}

}  // namespace lockstep::train
