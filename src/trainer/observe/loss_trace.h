#pragma once
// The losses of an epoch: mean, last, and the first that is not finite. A GPU does not wait at each step.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::train {

struct BadLoss {
  int64_t step = 0;
  double loss = 0;
  std::vector<int64_t> indices;  // the batch's samples
};

class LossTrace {
 public:
  /// One batch's loss. It is read now on the CPU, in read_pending() on a GPU.
  void add(int64_t step, const at::Tensor& loss, const std::vector<int64_t>& indices);
  /// A loss that stays in `losses` at `place` until read_pending(). All of a trace are, or none.
  void add(int64_t step, const at::Tensor& losses, int64_t place, const std::vector<int64_t>& indices);
  /// Waits for the losses that are not read yet.
  void read_pending();
  /// Runs before each such wait.
  void before_waiting(std::function<void()> work) { before_waiting_ = std::move(work); }

  double sum() const { return sum_; }
  int64_t count() const { return count_; }
  double mean() const { return count_ ? sum_ / static_cast<double>(count_) : 0; }
  /// Of the last step: the mean of its batches.
  double last() const { return step_sum_ / static_cast<double>(step_count_ ? step_count_ : 1); }
  const std::optional<BadLoss>& bad() const { return bad_; }
  /// At an epoch's start, or from a checkpoint.
  void restart(double sum = 0, int64_t count = 0);

 private:
  struct Pending {
    int64_t step;
    at::Tensor loss;  // or all losses
    std::vector<int64_t> indices;
    int64_t place = -1;  // among all
  };
  std::vector<double> pending_losses() const;
  void add(Pending one);
  void take(int64_t step, double loss, const std::vector<int64_t>& indices);

  std::vector<Pending> pending_;
  std::function<void()> before_waiting_;
  double sum_ = 0, step_sum_ = 0;
  int64_t count_ = 0, step_count_ = 0, step_ = -1;
  std::optional<BadLoss> bad_;
};

}  // namespace lockstep::train
