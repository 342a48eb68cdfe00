#pragma once
// What a rank is about to run, compared over the ranks before it runs: TORCH_DISTRIBUTED_DEBUG=DETAIL.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::comm {

/// A collective as its caller gave it, in words.
struct Call {
  std::string name;       // "reduce"
  std::string operation;  // "reduce (max) to rank 1"
  std::string types;      // "Float, Long"
  std::string shapes;     // "[10, 3], [4]"
};

/// `how` follows the operation's name: of_root(), of_sum() or nothing.
Call call_of(c10d::OpType type, const std::vector<at::Tensor>& tensors, const std::string& how = "");
std::string of_root(int64_t root);
std::string of_sum(const c10d::ReduceOp& op);

/// Ranks of a group that are about to run different collectives: said, and as data (numbers of the group).
struct Difference {
  std::string words = {};
  std::vector<RankCall> calls = {};

  bool empty() const { return words.empty(); }
};

/// Every rank's bytes, in rank order, for as many of one's own.
using GatherBytes = std::function<std::vector<std::string>(const std::string& own)>;

/// Collective. Empty where all ranks are about to run the same; else what each runs and in what they differ,
/// in the same words on every rank.
Difference difference(const Call& own, const GatherBytes& gather);

}  // namespace lockstep::comm
