#pragma once
// A running mean that ranks can merge.

#include <ATen/core/Tensor.h>

#include <utility>

namespace lockstep {

/// `mean.add(loss)` in the loop, `session.all_reduce(mean)` for the log. add() keeps tensors unread, so that
/// a GPU is not waited for.
class Mean {
 public:
  /// A scalar, or a tensor whose elements are all counted.
  void add(const at::Tensor& value);
  void add(double value, double count = 1);
  /// This rank's mean; NaN where nothing was added.
  double value() const;
  /// The sum of what was added, and how much that was.
  std::pair<double, double> total() const;

 private:
  at::Tensor sum_;
  double count_ = 0;
};

}  // namespace lockstep
