#pragma once
// Collectives and messages as errors describe them, and the comparison of what the ranks are about to run.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::comm {

/// One collective, or one message between two ranks, as errors describe it.
struct Collective {
  std::string what;     // "all-reduce"
  uint64_t number = 0;  // from 1, the same on every rank; messages are not counted
  std::chrono::milliseconds timeout{0};
  int peer = -1;               // of a message: its other end; -1: any rank
  std::string waits_for = "";  // of a message: "rank 1 has not sent one", if no rank is known to be at fault

  bool is_message() const { return !waits_for.empty(); }
};

/// "all-reduce"
std::string op_name(c10d::OpType type);

/// The message as an error describes it; peer -1: from any rank.
Collective message_with(c10d::OpType type, int peer, std::chrono::milliseconds timeout);

/// InputError where the group of `world` ranks has no `rank`; `what`: its role, "the root of a broadcast".
void require_rank(int64_t rank, int world, const char* what);

/// A collective as its caller requested it, in words.
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

/// Ranks of a group that are about to run different collectives, in words and as data (ranks of the group).
struct Difference {
  std::string words = {};
  std::vector<RankCall> calls = {};

  bool empty() const { return words.empty(); }
};

/// Gathers every rank's bytes, in rank order. All ranks pass the same number of bytes.
using GatherBytes = std::function<std::vector<std::string>(const std::string& own)>;

/// Collective. Empty if all ranks are about to run the same call. Otherwise what each rank runs and how the
/// calls differ, in the same words on every rank.
Difference difference(const Call& own, const GatherBytes& gather);

}  // namespace lockstep::comm
