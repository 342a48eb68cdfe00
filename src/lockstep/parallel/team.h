#pragma once
// The ranks that train together, and the small exchanges that training needs besides gradients.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/launch/job.h"

namespace lockstep {

/// A group of ranks. Every call except the getters is collective. With one rank, calls cost nothing.
class Team {
 public:
  /// Without a group each process is a team of its own. `device`: the device of the group's tensors.
  Team(Job job, ProcessGroup group, at::Device device)
      : job_(std::move(job)), group_(std::move(group)), device_(device) {}

  /// From 0 to world() - 1.
  int rank() const { return group_ ? group_->getRank() : 0; }
  /// How many ranks there are.
  int world() const { return group_ ? group_->getSize() : 1; }
  /// Whether this is rank 0.
  bool first() const { return rank() == 0; }
  /// This process's place in its job.
  const Job& job() const { return job_; }
  /// The process group; null if this process is alone.
  const ProcessGroup& group() const { return group_; }
  /// The device on which collectives take and return tensors.
  at::Device device() const { return device_; }

  /// The device for collectives on host data: the CPU, if the group has a backend for it.
  at::Device host_device() const;

  /// Sums over the ranks, element by element, in place.
  void sum(std::vector<double>& values) const { reduce(values, /*max=*/false); }
  /// The maximum over the ranks, element by element, in place.
  void max(std::vector<double>& values) const { reduce(values, /*max=*/true); }
  /// Sums CPU tensors over the ranks, in place.
  void sum(std::vector<at::Tensor>& tensors) const;
  /// Every rank's tensor (CPU, the same shape on all), in rank order.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const;
  /// Every rank's string, in rank order.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// Returns rank 0's string on every rank.
  std::string broadcast(const std::string& text) const;
  /// Returns when every rank has called it.
  void barrier() const;
  /// Starts an asynchronous sum on the GPU, so that NCCL's watchdog also detects a hang in work queued
  /// earlier, such as a captured step. Does nothing on a CPU.
  void time_queued_work() const;
  /// Deprecated.
  [[deprecated("use time_queued_work")]] void time_what_is_under_way() const { time_queued_work(); }

  /// Runs `work` on rank 0 and returns its result on every rank. If it throws, every rank throws an error of
  /// the same type and text.
  std::string from_first(const std::function<std::string()>& work) const;
  /// Runs `work` on every rank. If it fails on any, all ranks throw the error of the lowest failing rank,
  /// with the same type and text.
  void together(const std::function<void()>& work) const;

 private:
  bool alone() const { return world() == 1; }
  void reduce(std::vector<double>& values, bool max) const;
  Job job_;
  ProcessGroup group_;
  at::Device device_;
};

// A running mean that ranks can merge.

/// A mean: `mean.add(loss)`, then `session.all_reduce(mean)`. add() does not synchronize with a GPU.
class Mean {
 public:
  /// Adds all elements of a tensor, or `count` values with the mean `value`.
  void add(const at::Tensor& value);
  void add(double value, double count = 1);
  /// This rank's mean; NaN if nothing was added.
  double value() const;
  /// The sum and the number of the values added on this rank.
  std::pair<double, double> total() const;

 private:
  at::Tensor sum_;
  double count_ = 0;
};

}  // namespace lockstep
