#include "lockstep/parallel/stages/stage_steps.h"

namespace lockstep::parallel {
namespace {

void add(std::vector<StageMessage>& messages, bool sends, const Turn& turn, int peer, int stages) {
  if (peer >= 0 && peer < stages) messages.push_back({sends, turn.forward, turn.micro_batch, peer});
}

}  // namespace

std::vector<StageStep> stage_steps(const std::vector<Turn>& turns, int stages, int stage) {
  std::vector<StageStep> steps(turns.size() + 1);
  for (size_t i = 0; i < turns.size(); ++i) {
    const int way = turns[i].forward ? 1 : -1;
    add(steps[i].messages, false, turns[i], stage - way, stages);
    add(steps[i + 1].messages, true, turns[i], stage + way, stages);
    steps[i].turn = turns[i];
  }
  return steps;
}

}  // namespace lockstep::parallel
