#pragma once
// What a communicator does on a stream.
#include <nccl.h>

#include <cstddef>
#include <vector>

#include "nccl/comm.h"

namespace lab::nccl {

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter };
const char* name_of(Kind kind);
/// Of a number; 0 for a type that there is not here.
std::size_t size_of(ncclDataType_t type);

struct Collective {
  Kind kind = Kind::all_reduce;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  long number = 0;  // among those of this process; 0 for one of a graph
};

/// A send or a receive.
struct Point {
  bool sends = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};

/// Each rank shows a part, and when all have shown theirs each takes what it needs.
void run(Comm& comm, const Collective& collective);
/// Pieces through channels from rank to rank: all of them at once, those of one pair in one direction in
/// their order. A send of one piece ends without its receiver.
void run(Comm& comm, const std::vector<Point>& points);

/// Ranks that do not do the same: on GPUs a hang or wrong numbers, here a message, and then a hang.
[[noreturn]] void hang_over(Comm& comm, const std::string& mismatch);

}  // namespace lab::nccl
