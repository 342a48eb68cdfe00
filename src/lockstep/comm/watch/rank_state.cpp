#include "lockstep/comm/watch/rank_state.h"

#include <cstddef>

namespace lockstep::comm {

RankState rank_state(ProcessState process, bool left, uint64_t begun, uint64_t number, bool timed_out) {
  if (left && (number == 0 || begun < number)) return RankState::left;
  if (process == ProcessState::gone) return RankState::died;
  if (!timed_out) return RankState::good;
  if (process == ProcessState::stopped) return RankState::stopped;
  return begun < number ? RankState::late : RankState::good;
}

const StateWords& words_for(RankState state) {
  static constexpr StateWords words[] = {
      {"is well", "are well", ", at", Code::failed},
      {"left the group", "left the group", " after", Code::rank_lost},
      {"has died (its process is gone)", "have died (their processes are gone)", ", at", Code::rank_lost},
      {"is stopped (SIGSTOP?)", "are stopped (SIGSTOP?)", ", at", Code::rank_late},
      {"did not come, it is", "did not come, they are", " at", Code::rank_late}};
  return words[static_cast<size_t>(state)];  // in the order of RankState
}

}  // namespace lockstep::comm
