#include "lockstep/parallel/mean.h"

#include <torch/types.h>
#include <torch/utils.h>

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

}  // namespace lockstep
