#include "trainer/step/captured_step.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

std::vector<double> momenta_of(const Optimizer& optimizer) {
  std::vector<double> momenta;
  for (size_t group = 0; group < optimizer.group_count(); ++group)
    momenta.push_back(optimizer.momentum(group));
  return momenta;
}

}  // namespace

CapturedStep::CapturedStep(const Parts& parts, Work work)
    : parts_(parts), work_(std::move(work)), momenta_(momenta_of(parts.optimizer)) {
  const auto numbers = torch::TensorOptions(torch::kInt64).device(parts.data.device());
  order_ = torch::zeros({parts.most_batches, parts.batch_size}, numbers);
  place_ = torch::zeros({1}, numbers);
}

void CapturedStep::begin_epoch(const SampleOrder& order) {
  const int64_t full = order.size() / parts_.batch_size;
  const auto numbers = torch::empty({full, parts_.batch_size}, torch::kInt64);
  auto* number = numbers.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) number[i] = order[i];
  order_.narrow(0, 0, full).copy_(numbers);
  place_.zero_();
  next_ = 0;
}

void CapturedStep::run(int64_t number, const std::vector<int64_t>& indices, LossTrace& losses) {
  if (static_cast<int64_t>(indices.size()) != parts_.batch_size) {
    keep(work_(parts_.data.get(indices)));
  } else if (!can_replay(number)) {
    take_next();
  } else {
    if (!is_captured_) capture(number);
    parts_.graph.replay();
  }
  losses.add(number, losses_, next_++, indices);
}

// The rate lies on the device, a momentum does not. One that moves at each step is never captured.
bool CapturedStep::can_replay(int64_t number) {
  if (plain_ > 0) return --plain_, false;
  auto momenta = momenta_of(parts_.optimizer);
  if (momenta == momenta_) return true;
  momenta_ = std::move(momenta);
  if (std::exchange(is_captured_, false))
    log::info(
        format("step {}: the momentum has changed, and the step is captured again where it rests", number));
  return false;
}

void CapturedStep::capture(int64_t number) {
  parts_.graph.capture([this] { take_next(); });
  is_captured_ = true;
  log::info(format("step {}: captured; from here on a step is one launch", number));
}

void CapturedStep::take_next() {
  keep(work_(parts_.data.gather(order_.index_select(0, place_).flatten())));
}

void CapturedStep::keep(const at::Tensor& loss) {
  const torch::NoGradGuard no_grad;
  if (!losses_.defined()) losses_ = torch::zeros({parts_.most_batches}, loss.options());
  losses_.index_copy_(0, place_, loss.detach().reshape({1}));
  place_.add_(1);
}

}  // namespace lockstep::train
