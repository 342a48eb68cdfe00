#pragma once
// Small exchanges between the ranks of a group: a mean for the log, a text, an ordered print.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep {

/// A running mean that ranks can merge: add() keeps tensors unread, so that a GPU is not waited for.
class Mean {
 public:
  /// A scalar or a tensor whose elements are all counted.
  void add(const at::Tensor& value);
  void add(double value, double count = 1);
  /// [sum, count] as doubles.
  at::Tensor total() const;
  /// This rank's mean; NaN where nothing was added.
  double value() const;

 private:
  at::Tensor sum_;
  double count_ = 0;
};

/// The mean over everything that every rank has added; collective.
double all_reduce_mean(const Mean& mean, const ProcessGroup& group);
/// The mean of a tensor over the ranks (a loss for the log): detached, on every rank; collective.
at::Tensor all_reduce_mean(const at::Tensor& tensor, const ProcessGroup& group);

/// Root's text on every rank; collective.
std::string broadcast_text(const std::string& text, const ProcessGroup& group, int root = 0);
/// Every rank's text, in rank order, on every rank; collective.
std::vector<std::string> all_gather_text(const std::string& text, const ProcessGroup& group);

/// Runs `body` on rank 0 alone; the others wait for it. An exception of rank 0 is thrown on every rank.
void rank0_only(const ProcessGroup& group, const std::function<void()>& body);
/// Each rank's text on rank 0's standard output, in rank order; collective.
void print_in_order(const std::string& text, const ProcessGroup& group);

}  // namespace lockstep
