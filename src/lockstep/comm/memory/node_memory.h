#pragma once
// Memory that the ranks of a node share: a piece from each, which all of them map.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/base/files/shared_memory.h"

namespace lockstep::comm {

/// The ranks of one node among those of a group.
struct NodeRanks {
  std::vector<int> ranks;  // of the group, ascending
  int own = 0;             // this rank's place among them
};

struct NodeMemory {
  std::vector<base::SharedMemory> pieces;  // by place; empty where there is none
  std::string why;                         // there is none, the same words on all ranks
};

/// Collective over these ranks, all of which reach the store: so many bytes of each, zero but for a mark at
/// their end (kMarkBytes), or nothing, on all ranks alike: /dev/shm may be full, or ranks that believe to be
/// on one node may be in containers that do not share it. No name is left behind.
NodeMemory share_memory(c10d::Store& store, const std::string& stage, const NodeRanks& node, size_t bytes);

constexpr size_t kMarkBytes = 32;

/// Collective over these ranks: what each tells the others at this stage, by place.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own);

}  // namespace lockstep::comm
