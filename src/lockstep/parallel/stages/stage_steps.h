#pragma once
// What a stage of a pipeline does, in order: its turns, and which messages it exchanges between them.

#include <optional>
#include <vector>

#include "lockstep/parallel/one_f_one_b.h"

namespace lockstep::parallel {

/// A micro-batch on its way to a neighbour or from one: an output forward, a gradient back.
struct StageMessage {
  bool sends;  // else it is received
  bool forward;
  int64_t micro_batch;
  int peer;  // the neighbour's stage

  bool operator==(const StageMessage&) const = default;
};

/// The messages are one group, as NCCL has it: all are under way at once, and what comes next waits for all.
struct StageStep {
  std::vector<StageMessage> messages;
  std::optional<Turn> turn;  // after them; none at the end
};

/// Between two turns: what the first made is sent, and what the second needs received. Why stages that wait
/// for each such group in one_f_one_b()'s order meet no deadlock is in
/// docs/decisions/0014-pipeline-messages.md.
std::vector<StageStep> stage_steps(const std::vector<Turn>& turns, int stages, int stage);

}  // namespace lockstep::parallel
