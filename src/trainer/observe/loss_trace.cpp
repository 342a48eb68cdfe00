#include "trainer/observe/loss_trace.h"

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
  add({step, loss.detach(), indices});
}

void LossTrace::add(int64_t step, const at::Tensor& losses, int64_t place,
                    const std::vector<int64_t>& indices) {
  add({step, losses, indices, place});
}

void LossTrace::add(Pending one) {
  pending_.push_back(std::move(one));
  if (pending_.size() >= kMostPending) read_pending();
}

// In one copy to the CPU.
std::vector<double> LossTrace::pending_losses() const {
  std::vector<at::Tensor> losses;
  std::vector<double> values;
  const bool together = pending_.front().place >= 0;
  for (const auto& one : pending_)
    if (!together) losses.push_back(one.loss.to(torch::kFloat64));
  const auto all =
      (together ? pending_.front().loss : torch::stack(losses)).to(torch::kCPU).to(torch::kFloat64);
  for (const auto& one : pending_) {
    const auto place = together ? one.place : static_cast<int64_t>(values.size());
    values.push_back(all.const_data_ptr<double>()[place]);
  }
  return values;
}

void LossTrace::read_pending() {
  if (pending_.empty()) return;
  if (before_waiting_) before_waiting_();
  const auto values = pending_losses();
  for (size_t i = 0; i < pending_.size(); ++i) take(pending_[i].step, values[i], pending_[i].indices);
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
  read_pending();
  sum_ = sum;
  count_ = count;
}

}  // namespace lockstep::train
