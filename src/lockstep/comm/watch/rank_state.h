#pragma once
// What a rank at fault has done, and how an error says it.

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/comm/watch/process_state.h"

namespace lockstep::comm {

enum class RankState { good, left, died, stopped, late };

/// Of a rank that is at its collective `begun`, where `number` is awaited (0: not counted). Without a
/// timeout only an ended rank is at fault.
RankState rank_state(ProcessState process, bool left, uint64_t begun, uint64_t number, bool timed_out);

/// What an error says of ranks in a state that is not good, as "has died (its process is gone)"; `at` joins
/// it to a collective's number: ", at" + " collective 3".
struct StateWords {
  const char* of_one;
  const char* of_several;
  const char* at;
  Code code;
};
const StateWords& words_for(RankState state);

}  // namespace lockstep::comm
