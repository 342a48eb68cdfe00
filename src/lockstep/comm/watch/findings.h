#pragma once
// What the ranks of a node know of each other: how far each has come, and who is at fault. A Fault without
// words says that nobody is seen to be.

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

/// A page of memory that the ranks of a node share. Written at each collective with one store, read only when
/// something went wrong.
class RollPage {
 public:
  static size_t bytes_for(int world);
  RollPage(base::SharedMemory memory, int world);

  struct Rank {
    alignas(128) std::atomic<uint64_t> begun;  // collectives; neighbours are fetched in pairs of cache lines
    std::atomic<uint32_t> what;                // the kind of the newest
    std::atomic<bool> present, left;           // on this page; by an orderly goodbye
  };
  Rank& of(int rank) const;

  /// The first finding of the node stands: later deaths are its consequences. Returns the one that stands.
  std::string agree_on(const std::string& finding);
  std::string agreed() const;

  void unlink() { memory_.unlink(); }
  const std::string& name() const { return memory_.name(); }

 private:
  struct Head;
  Head& head() const;

  base::SharedMemory memory_;
};

}  // namespace lockstep::comm
