#pragma once
// Who is at fault, as ranks find it and tell each other: a Fault, and one without words where nobody is seen
// to be.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/comm/meet/peers.h"

namespace lockstep::comm {

/// Whether somebody is at fault.
bool is_any(const Fault& found);
/// Both, one behind the other.
void add(Fault& found, const Fault& more);

/// All of them are at fault, in one way.
Fault finding(const std::vector<Peer>& peers, Code code, const std::string& what, RankCall like);

/// As a page and the store keep it, with some of the ranks; a page may cut the words, which come last.
std::string packed(const Fault& found);
/// Of anything else: nobody.
Fault unpacked(const std::string& text);

// One page that the ranks of a node share: how many collectives each has begun. Written at each collective
// with one store, read only when something went wrong.

class RollPage {
 public:
  static size_t bytes_for(int world);
  RollPage(base::SharedMemory memory, int world);

  /// Says that `rank` is on this page.
  void enter(int rank);
  bool present(int rank) const;
  /// The number of the collective that begins now, from 1; `what` says what kind it is.
  uint64_t begin(int rank, uint32_t what = 0);
  /// Takes back a begin() whose collective was refused for its arguments.
  void take_back(int rank);
  uint64_t begun(int rank) const;
  /// Of the one begun last.
  uint32_t what(int rank) const;
  /// An orderly goodbye.
  void leave(int rank);
  bool left(int rank) const;

  /// The first finding of the node stands: later deaths are its consequences. Returns the one that stands.
  std::string agree_on(const std::string& finding);
  std::string agreed() const;

  void unlink() { memory_.unlink(); }
  const std::string& name() const { return memory_.name(); }

 private:
  struct Slot;
  struct Head;
  Head& head() const;
  Slot& slot(int rank) const;

  base::SharedMemory memory_;
};

// What has become of another process of this node.

enum class ProcessState { running, stopped, gone };

/// A zombie counts as gone: its sockets and memory are.
ProcessState process_state(int pid);

// What a rank at fault has done, and how an error says it.

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
