#pragma once
// The ranks that train together, and the few small exchanges that training needs besides the gradients.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/launch/job.h"

namespace lockstep {

/// Every call except the getters is collective. With one rank the calls cost nothing.
class Team {
 public:
  /// Without a group each process is alone. `device`: where the group's backend expects its tensors.
  Team(Job job, ProcessGroup group, at::Device device)
      : job_(std::move(job)), group_(std::move(group)), device_(device) {}

  /// From 0 to world() - 1.
  int rank() const { return group_ ? group_->getRank() : 0; }
  /// How many ranks there are.
  int world() const { return group_ ? group_->getSize() : 1; }
  /// Is this rank 0?
  bool first() const { return rank() == 0; }
  /// This process's place in its job.
  const Job& job() const { return job_; }
  /// Null where each process is alone.
  const ProcessGroup& group() const { return group_; }
  /// Where tensors are exchanged and computed with.
  at::Device device() const { return device_; }

  /// Where to exchange data of the host: on the CPU, if the group has a backend for it.
  at::Device host_device() const;

  /// In place, element by element, over the ranks.
  void sum(std::vector<double>& values) const { reduce(values, /*max=*/false); }
  /// As sum(), the largest of each.
  void max(std::vector<double>& values) const { reduce(values, /*max=*/true); }
  /// In place; CPU tensors.
  void sum(std::vector<at::Tensor>& tensors) const;
  /// Every rank's tensor (CPU, the same shape on all), in rank order.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const;
  /// Every rank's text, in rank order.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// Rank 0's text on every rank.
  std::string broadcast(const std::string& text) const;
  /// Returns when every rank has called it.
  void barrier() const;
  /// Starts a sum on the GPU and does not wait for it. NCCL's watchdog times it and everything queued before
  /// it, such as a captured step, which is not timed itself. Does nothing on a CPU.
  void time_what_is_under_way() const;

  /// What rank 0's work returns, on every rank. Every rank throws its error, of the same kind and with the
  /// same text.
  std::string from_first(const std::function<std::string()>& work) const;
  /// Work that may fail on any rank: then all throw the error of the first such rank, of the same kind and
  /// with the same text.
  void together(const std::function<void()>& work) const;

 private:
  bool alone() const { return world() == 1; }
  void reduce(std::vector<double>& values, bool max) const;
  Job job_;
  ProcessGroup group_;
  at::Device device_;
};

// A running mean that ranks can merge.

/// `mean.add(loss)` in the loop, `session.all_reduce(mean)` for the log. add() does not wait for a GPU.
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
